#pragma once

/* A matrix product in int8 for a few to a few hundred rows. Every row of x is quantized with a scale of its own and its
   integer sums are exact, so a row's result is the same to the bit, whatever the other rows, the tiles and the threads.

   x ≈ (q − 128) · row scale with q from 1 to 255, W ≈ w · column scale with w from −127 to 127, and then
   x W ≈ (Σ q w − 128 Σ w) · row scale · column scale.

   The matrix is stored in reading order: blocks of 64 columns, and in a block, for every 4 positions of the depth, the 4
   weights of each column side by side, because one instruction multiplies such fours and adds them up. Sums wrap around in
   32 bits and the result fits them up to a depth of 133,144. */

#include "team.h"
#include <stdint.h>
#include <string.h>

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__ARM_NEON)
#include <arm_neon.h>
#endif

#define INT8_COLUMNS 64
#define INT8_FOUR 4
#define INT8_GROUP (INT8_COLUMNS * INT8_FOUR) /* bytes of a block for 4 positions of the depth */
#define INT8_CHUNK 48                         /* rows of a thread's task */
#define INT8_AHEAD 32                         /* groups to prefetch */

/* `int8_fours`: to every 32-bit lane of `sum`, the sum of four products of bytes, q without and w with a sign. Without
   an instruction for that, the even and the odd bytes are widened to 16 bits: products of bytes added up in 16 bits, as
   vpmaddubsw does, would saturate.
   INT8_WIDE: lanes of a register. A tile has sums for INT8_ROWS rows and INT8_PARTS registers of columns; one row alone
   has INT8_SPAN registers of columns, to read a block in order. */
#if defined(__AVX512VNNI__)
#define INT8_WIDE 16
#define INT8_ROWS 6
#define INT8_PARTS 4
#define INT8_SPAN 4
typedef __m512i int8_lanes;
static inline int8_lanes int8_fours(int8_lanes sum, int8_lanes q, int8_lanes w)
{
    /* With the intrinsic gcc 12 copies the sums to memory and back, and a tile takes half as long again. */
    __asm__("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(q), "v"(w));
    return sum;
}

#elif defined(__AVXVNNI__)
#define INT8_WIDE 8
#define INT8_ROWS 6
#define INT8_PARTS 2
#define INT8_SPAN 8
typedef __m256i int8_lanes;
static inline int8_lanes int8_fours(int8_lanes sum, int8_lanes q, int8_lanes w)
{
    __asm__("%{vex%} vpdpbusd %2, %1, %0" : "+x"(sum) : "x"(q), "x"(w));
    return sum;
}

#elif defined(__x86_64__)
#define INT8_ROWS 4
#if defined(__AVX512BW__)
#define INT8_WIDE 16
#define INT8_PARTS 4
#define INT8_SPAN 4
#define INT8_OF(operation) _mm512_##operation
typedef __m512i int8_lanes;
#elif defined(__AVX2__)
#define INT8_WIDE 8
#define INT8_PARTS 2
#define INT8_SPAN 8
#define INT8_OF(operation) _mm256_##operation
typedef __m256i int8_lanes;
#else
#define INT8_WIDE 4
#define INT8_PARTS 2
#define INT8_SPAN 8
#define INT8_OF(operation) _mm_##operation
typedef __m128i int8_lanes;
#endif
static inline int8_lanes int8_fours(int8_lanes sum, int8_lanes q, int8_lanes w)
{
    int8_lanes even = INT8_OF(srai_epi16)(INT8_OF(slli_epi16)(w, 8), 8), odd = INT8_OF(srai_epi16)(w, 8);
    int8_lanes first = INT8_OF(madd_epi16)(q & INT8_OF(set1_epi16)(255), even);
    return INT8_OF(add_epi32)(INT8_OF(add_epi32)(sum, first), INT8_OF(madd_epi16)(INT8_OF(srli_epi16)(q, 8), odd));
}

#else
#define INT8_WIDE 4
#define INT8_ROWS 4
#define INT8_PARTS 4
#define INT8_SPAN 16
typedef int32_t int8_lanes __attribute__((vector_size(16)));
#if defined(__ARM_FEATURE_DOTPROD) /* both with a sign: q − 128 directly */
#define INT8_OFFSET 0
static inline int8_lanes int8_fours(int8_lanes sum, int8_lanes q, int8_lanes w)
{
    return (int8_lanes)vdotq_s32((int32x4_t)sum, veorq_s8((int8x16_t)q, vdupq_n_s8(-128)), (int8x16_t)w);
}
#else
typedef uint32_t int8_wrapping __attribute__((vector_size(16)));
static inline int8_lanes int8_fours(int8_lanes sum, int8_lanes q, int8_lanes w)
{
    int8_wrapping total = (int8_wrapping)sum, bytes = (int8_wrapping)q, weights = (int8_wrapping)w;
    for (int i = 0; i < 32; i += 8)
        total += ((bytes >> i) & 255) * (int8_wrapping)((int8_lanes)(weights << (24 - i)) >> 24);
    return (int8_lanes)total;
}
#endif
#endif

#if !defined(INT8_OFFSET)
#define INT8_OFFSET 128
#endif
#if defined(__FP_FAST_FMAF) /* explicit, or one copy of the code could have it and another not */
#define INT8_MULTIPLY_ADD(a, b, c) __builtin_fmaf(a, b, c)
#else
#define INT8_MULTIPLY_ADD(a, b, c) ((a) * (b) + (c))
#endif
#define INT8_UNROLL _Pragma("GCC unroll 16")

typedef int32_t int8_word __attribute__((aligned(1), may_alias));
typedef int32_t int8_register __attribute__((vector_size(4 * INT8_WIDE), aligned(1), may_alias));

struct int8_matrix {
    const int8_t *blocks; /* (width / 64 rounded up, depth / 4 rounded up, 64, 4), zeros where there is no weight */
    const float *scales;  /* (width) */
    const int32_t *sums;  /* (width), Σ w of each column */
    const float *bias;    /* (width) or NULL */
    int64_t depth, width;
};

/* What the columns of a block have in common for all rows, with zeros beyond the last column. */
struct int8_columns {
    int32_t starts[INT8_COLUMNS];
    float scales[INT8_COLUMNS], bias[INT8_COLUMNS];
};

static inline int64_t int8_padded(int64_t depth) { return (depth + INT8_FOUR - 1) / INT8_FOUR * INT8_FOUR; }

/* One row of x as q, `padded_depth` ≥ int8_padded(depth) bytes, and its scale: |x|'s maximum / 127. A row with a NaN or an
   infinity gets the scale NaN and so a result of NaN. A row below 1e-35 counts as zero: its scale would not be a normal
   number. */
static void quantize_row(const float *x, uint8_t *q, float *scale, int64_t depth, int64_t padded_depth)
{
    int32_t most = 0; /* |x| is ordered as its bits are; a NaN is above all */
    for (int64_t d = 0; d < depth; d++) {
        int32_t size = ((const int8_word *)x)[d] & 0x7fffffff;
        most = size > most ? size : most;
    }
    float largest;
    memcpy(&largest, &most, sizeof largest);
    int usual = most < 0x7f800000 && largest >= 1e-35f;
    *scale = usual ? largest / 127 : most < 0x7f800000 ? 0 : __builtin_nanf("");
    float inverse = 127 / largest;
    memset(q + depth, 128, padded_depth - depth);
    if (!usual) {
        memset(q, 128, depth);
        return;
    }
    int64_t d = 0;
#if defined(__AVX512F__)
    for (__m512 many = _mm512_set1_ps(inverse); d + 16 <= depth; d += 16) {
        __m512i whole = _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_loadu_ps(x + d), many));
        _mm_storeu_si128((__m128i *)(q + d), _mm512_cvtepi32_epi8(_mm512_add_epi32(whole, _mm512_set1_epi32(128))));
    }
#endif
    for (; d < depth; d++) q[d] = (uint8_t)((int32_t)__builtin_rintf(x[d] * inverse) + 128);
}

/* x (rows, depth) as q (rows, padded_depth) and its row_scales (rows). */
static void quantize_rows(const float *x, uint8_t *q, float *row_scales, int64_t rows, int64_t depth,
                          int64_t padded_depth, const struct member *me)
{
    SHARED(row, rows) quantize_row(x + row * depth, q + row * padded_depth, row_scales + row, depth, padded_depth);
    meet(me);
}

/* Sums of `count` rows and `parts` registers of columns. Both are constants where it is called, so that the sums stay in
   registers. */
static inline __attribute__((always_inline)) void int8_tile(const int count, const int parts, const uint8_t *q,
                                                            int64_t padded, const int8_t *w, const int32_t *starts,
                                                            int32_t *sums)
{
    int8_lanes sum[INT8_ROWS][INT8_SPAN];
    INT8_UNROLL for (int p = 0; p < parts; p++)
        INT8_UNROLL for (int r = 0; r < count; r++)
            sum[r][p] = (int8_lanes)*(const int8_register *)(starts + p * INT8_WIDE);
    for (int64_t k = 0; k < padded; k += INT8_FOUR, w += INT8_GROUP) {
        int8_lanes weights[INT8_SPAN];
        INT8_UNROLL for (int p = 0; p < parts * INT8_WIDE; p += 16)
            __builtin_prefetch(w + INT8_AHEAD * INT8_GROUP + p * INT8_FOUR);
        INT8_UNROLL for (int p = 0; p < parts; p++)
            weights[p] = (int8_lanes)*(const int8_register *)(w + p * INT8_WIDE * INT8_FOUR);
        INT8_UNROLL for (int r = 0; r < count; r++) {
            int8_lanes four = (int8_lanes)((int8_register){0} + *(const int8_word *)(q + r * padded + k));
            INT8_UNROLL for (int p = 0; p < parts; p++) sum[r][p] = int8_fours(sum[r][p], four, weights[p]);
        }
    }
    INT8_UNROLL for (int r = 0; r < count; r++)
        INT8_UNROLL for (int p = 0; p < parts; p++)
            *(int8_register *)(sums + r * INT8_COLUMNS + p * INT8_WIDE) = (int8_register)sum[r][p];
}

/* The sums of up to INT8_ROWS rows and the 64 columns of a block. */
static void int8_block(int count, const uint8_t *q, int64_t padded, const int8_t *w, const int32_t *starts, int32_t *sums)
{
#define INT8_CASE(COUNT, PARTS)                                                                             \
    case COUNT:                                                                                             \
        for (int c = 0; c < INT8_COLUMNS; c += PARTS * INT8_WIDE)                                           \
            int8_tile(COUNT, PARTS, q, padded, w + c * INT8_FOUR, starts + c, sums + c);                    \
        break;
    switch (count) {
        INT8_CASE(1, INT8_SPAN)
        INT8_CASE(2, INT8_PARTS)
        INT8_CASE(3, INT8_PARTS)
        INT8_CASE(4, INT8_PARTS)
#if INT8_ROWS == 6
        INT8_CASE(5, INT8_PARTS)
        INT8_CASE(6, INT8_PARTS)
#endif
    }
#undef INT8_CASE
}

/* One row of sums as numbers, added to or stored in `out`, of which `wide` columns exist. */
static inline void int8_finish(const int32_t *sums, float row_scale, const struct int8_columns *columns, float *out,
                               int64_t wide, int add)
{
    float result[INT8_COLUMNS];
    for (int c = 0; c < INT8_COLUMNS; c++)
        result[c] = INT8_MULTIPLY_ADD((float)sums[c], row_scale * columns->scales[c], columns->bias[c]);
    if (!add && wide == INT8_COLUMNS)
        memcpy(out, result, sizeof result);
    else if (wide == INT8_COLUMNS)
        for (int c = 0; c < INT8_COLUMNS; c++) out[c] += result[c];
    else
        for (int c = 0; c < wide; c++) out[c] = add ? out[c] + result[c] : result[c];
}

/* The product of rows `row` to `end` and one block, which stays in the cache for all tiles. The tiles have the same number
   of rows, or one less. */
static void int8_task(const struct int8_matrix *m, const uint8_t *q, const float *row_scales, float *out, int64_t block,
                      int64_t row, int64_t end, int add)
{
    int64_t padded = int8_padded(m->depth), first = block * INT8_COLUMNS;
    int64_t wide = m->width - first < INT8_COLUMNS ? m->width - first : INT8_COLUMNS;
    struct int8_columns columns = {{0}, {0}, {0}};
    for (int64_t c = 0; c < wide; c++) {
        columns.starts[c] = (int32_t)(-(uint32_t)INT8_OFFSET * (uint32_t)m->sums[first + c]);
        columns.scales[c] = m->scales[first + c];
        columns.bias[c] = m->bias ? m->bias[first + c] : 0;
    }
    for (int64_t left = (end - row + INT8_ROWS - 1) / INT8_ROWS; left; left--) {
        int32_t sums[INT8_ROWS * INT8_COLUMNS] __attribute__((aligned(64)));
        int many = (int)((end - row + left - 1) / left);
        int8_block(many, q + row * padded, padded, m->blocks + first * padded, columns.starts, sums);
        for (int r = 0; r < many; r++, row++)
            int8_finish(sums + r * INT8_COLUMNS, row_scales[row], &columns, out + row * m->width + first, wide, add);
    }
}

/* out = x W (+ bias) (+ out), of x quantized by quantize_rows with padded_depth = int8_padded(depth). out (rows, width).
   Threads divide the blocks and the rows. */
static void multiply_int8(const struct int8_matrix *m, const uint8_t *q, const float *row_scales, float *out, int64_t rows,
                          int add, const struct member *me)
{
    int64_t count = (m->width + INT8_COLUMNS - 1) / INT8_COLUMNS, chunks = (rows + INT8_CHUNK - 1) / INT8_CHUNK;
    SHARED(task, count * chunks) {
        int64_t block = task / chunks, chunk = task % chunks;
        int8_task(m, q, row_scales, out, block, rows * chunk / chunks, rows * (chunk + 1) / chunks, add);
    }
    meet(me);
}
