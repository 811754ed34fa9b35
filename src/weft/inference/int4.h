#pragma once

/* A matrix product with weights of 4 bits. The inputs are quantized to int8 as in int8.h; a column has a scale for every
   group of `group` positions of the depth, and then

   x W ≈ row scale · Σ over groups of column scale · Σ within the group of (u − 8) q     with u = w + 8 from 0 to 15.

   The sum within a group is one of integers; the sum over groups is taken in the order of the depth. So a row's result is
   the same to the bit, whatever the other rows, the tiles and the threads.

   The matrix is stored in reading order: blocks of 64 columns, and in a block, for every 8 positions of the depth, 4 bytes
   of each column side by side: the low halves hold positions 0 to 3, the high halves 4 to 7. */

#include "int8.h"

#define INT4_EIGHT 8
#if INT8_OFFSET /* int8_fours takes u as it is; otherwise it takes u − 128 */
#define INT4_START (-8)
#else
#define INT4_START 120
#endif

/* `int4_scaled`: total + sum · scale of every lane, in one rounding where the processor has an instruction for that. */
#if defined(__AVX512F__) && INT8_WIDE == 16
typedef __m512 int4_floats;
static inline int4_floats int4_scaled(int4_floats total, int8_lanes sum, int4_floats scale)
{
    return _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum), scale, total);
}
#elif defined(__AVX2__) && defined(__FMA__)
typedef __m256 int4_floats;
static inline int4_floats int4_scaled(int4_floats total, int8_lanes sum, int4_floats scale)
{
    return _mm256_fmadd_ps(_mm256_cvtepi32_ps(sum), scale, total);
}
#else
typedef float int4_floats __attribute__((vector_size(4 * INT8_WIDE)));
typedef int32_t int4_integers __attribute__((vector_size(4 * INT8_WIDE)));
static inline int4_floats int4_scaled(int4_floats total, int8_lanes sum, int4_floats scale)
{
    int4_floats numbers = __builtin_convertvector((int4_integers)sum, int4_floats);
    for (int lane = 0; lane < INT8_WIDE; lane++) total[lane] = INT8_MULTIPLY_ADD(numbers[lane], scale[lane], total[lane]);
    return total;
}
#endif
typedef float int4_register __attribute__((vector_size(4 * INT8_WIDE), aligned(1), may_alias));

struct int4_matrix {
    const uint8_t *blocks; /* (width / 64 rounded up, depth / 8, 64, 4), halves of 8 where there is no weight */
    const float *scales;   /* (width / 64 rounded up, depth / group, 64), zeros beyond the last column */
    const float *bias;     /* (width) or NULL */
    int64_t depth, width, group; /* group is a multiple of 8 and divides depth */
};

/* Bytes of a quantized row: q, then what u = 8 adds to the sum of each group, with the opposite sign (int32). */
static inline int64_t int4_stride(int64_t depth, int64_t group) { return depth + depth / group * (int64_t)sizeof(int32_t); }

static void int4_quantize_row(const float *x, uint8_t *q, float *scale, int64_t depth, int64_t group)
{
    quantize_row(x, q, scale, depth, depth);
    for (int64_t g = 0; g < depth / group; g++) {
        int32_t sum = 0;
        for (int64_t k = g * group; k < (g + 1) * group; k++) sum += (int32_t)q[k] - 128;
        ((int8_word *)(q + depth))[g] = INT4_START * sum;
    }
}

/* Σ over groups of column scale · sum, of `count` rows and `parts` registers of columns: both are constants where it is
   called, so that the sums stay in registers. */
static inline __attribute__((always_inline)) void int4_tile(const int count, const int parts, int64_t depth, int64_t group,
                                                            const uint8_t *q, const uint8_t *w, const float *scales,
                                                            float *totals)
{
    int64_t stride = int4_stride(depth, group);
    int4_floats total[INT8_ROWS][INT8_SPAN];
    INT8_UNROLL for (int r = 0; r < count; r++)
        INT8_UNROLL for (int p = 0; p < parts; p++) total[r][p] = (int4_floats){0};
    for (int64_t g = 0, k = 0; k < depth; g++, scales += INT8_COLUMNS) {
        int8_lanes sum[INT8_ROWS][INT8_SPAN];
        INT8_UNROLL for (int r = 0; r < count; r++)
            INT8_UNROLL for (int p = 0; p < parts; p++)
                sum[r][p] = (int8_lanes)((int8_register){0} + ((const int8_word *)(q + r * stride + depth))[g]);
        for (int64_t end = k + group; k < end; k += INT4_EIGHT, w += INT8_GROUP) {
            INT8_UNROLL for (int p = 0; p < parts * INT8_WIDE; p += 16)
                __builtin_prefetch(w + INT8_AHEAD * INT8_GROUP + p * INT8_FOUR);
            INT8_UNROLL for (int half = 0; half < 2; half++) {
                int8_lanes weights[INT8_SPAN];
                INT8_UNROLL for (int p = 0; p < parts; p++) {
                    int8_register bytes = *(const int8_register *)(w + p * INT8_WIDE * INT8_FOUR);
                    weights[p] = (int8_lanes)((half ? bytes >> 4 : bytes) & 0x0f0f0f0f);
                }
                INT8_UNROLL for (int r = 0; r < count; r++) {
                    int8_word four = *(const int8_word *)(q + r * stride + k + half * INT8_FOUR);
                    int8_lanes numbers = (int8_lanes)((int8_register){0} + (four ^ (int8_word)0x80808080));
                    INT8_UNROLL for (int p = 0; p < parts; p++) sum[r][p] = int8_fours(sum[r][p], weights[p], numbers);
                }
            }
        }
        INT8_UNROLL for (int p = 0; p < parts; p++) {
            int4_floats scale = (int4_floats)*(const int4_register *)(scales + p * INT8_WIDE);
            INT8_UNROLL for (int r = 0; r < count; r++) total[r][p] = int4_scaled(total[r][p], sum[r][p], scale);
        }
    }
    INT8_UNROLL for (int r = 0; r < count; r++)
        INT8_UNROLL for (int p = 0; p < parts; p++)
            *(int4_register *)(totals + r * INT8_COLUMNS + p * INT8_WIDE) = (int4_register)total[r][p];
}

/* The totals of up to INT8_ROWS rows and the 64 columns of a block, whose weights and scales begin at w and scales. */
static void int4_block(int count, int64_t depth, int64_t group, const uint8_t *q, const uint8_t *w, const float *scales,
                       float *totals)
{
#define INT4_CASE(COUNT, PARTS)                                                                             \
    case COUNT:                                                                                             \
        for (int c = 0; c < INT8_COLUMNS; c += PARTS * INT8_WIDE)                                           \
            int4_tile(COUNT, PARTS, depth, group, q, w + c * INT8_FOUR, scales + c, totals + c);            \
        break;
    switch (count) {
        INT4_CASE(1, INT8_SPAN)
        INT4_CASE(2, INT8_PARTS)
        INT4_CASE(3, INT8_PARTS)
        INT4_CASE(4, INT8_PARTS)
#if INT8_ROWS == 6
        INT4_CASE(5, INT8_PARTS)
        INT4_CASE(6, INT8_PARTS)
#endif
    }
#undef INT4_CASE
}

/* The product of rows `row` to `end` and one block, as int8_task. */
static void int4_task(const struct int4_matrix *m, const uint8_t *q, const float *row_scales, float *out, int64_t block,
                      int64_t row, int64_t end, int add)
{
    int64_t first = block * INT8_COLUMNS, stride = int4_stride(m->depth, m->group);
    int64_t wide = m->width - first < INT8_COLUMNS ? m->width - first : INT8_COLUMNS;
    for (int64_t left = (end - row + INT8_ROWS - 1) / INT8_ROWS; left; left--) {
        float totals[INT8_ROWS * INT8_COLUMNS] __attribute__((aligned(64)));
        int many = (int)((end - row + left - 1) / left);
        int4_block(many, m->depth, m->group, q + row * stride, m->blocks + first * m->depth / 2,
                   m->scales + first * (m->depth / m->group), totals);
        for (int r = 0; r < many; r++, row++) {
            float *to = out + row * m->width + first;
            for (int64_t c = 0; c < wide; c++) {
                float start = m->bias ? m->bias[first + c] : 0;
                float result = INT8_MULTIPLY_ADD(totals[r * INT8_COLUMNS + c], row_scales[row], start);
                to[c] = add ? to[c] + result : result;
            }
        }
    }
}

/* out = x W (+ bias) (+ out). out (rows, width). `q`: room for rows of int4_stride bytes. */
static void multiply_int4(const struct int4_matrix *m, const float *x, uint8_t *q, float *row_scales, float *out,
                          int64_t rows, int add, const struct member *me)
{
    int64_t count = (m->width + INT8_COLUMNS - 1) / INT8_COLUMNS, chunks = (rows + INT8_CHUNK - 1) / INT8_CHUNK;
    int64_t stride = int4_stride(m->depth, m->group);
    SHARED(row, rows) int4_quantize_row(x + row * m->depth, q + row * stride, row_scales + row, m->depth, m->group);
    meet(me);
    SHARED(task, count * chunks) {
        int64_t block = task / chunks, chunk = task % chunks;
        int4_task(m, q, row_scales, out, block, rows * chunk / chunks, rows * (chunk + 1) / chunks, add);
    }
    meet(me);
}
