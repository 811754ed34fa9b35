/* Sums of a tile: a few rows of x times up to 64 columns, in registers. A row's sums are the same to the bit, however many
   other rows there are: every sum is one chain of multiply-adds in the order of the depth.

   Columns come in groups of 16. `w` holds a line of `line` columns for each position of the depth (fp32), or for each pair
   of positions (bf16, the two numbers of a column side by side). */

#pragma once

#include <stdint.h>
#include <string.h>

#include "lanes.h"
#include "product.h"

#define GROUP 16
#define TILE_COLUMNS 64
#define TILE_SUMS (ROWS * TILE_COLUMNS)

typedef uint16_t bfloat; /* the bits of a bfloat16 */
typedef uint32_t pair __attribute__((aligned(1), may_alias)); /* two of them */

#define TILE_INLINE static inline __attribute__((always_inline))

TILE_INLINE void float_tile(const int count, const int parts, const float *x, int64_t stride, const float *w, int64_t line,
                            int64_t depth, float *sums)
{
    wide sum[ROWS][PARTS];
    UNROLL for (int r = 0; r < count; r++)
        UNROLL for (int p = 0; p < parts; p++) sum[r][p] = (wide){0};
    for (int64_t k = 0; k < depth; k++, w += line) {
        wide column[PARTS];
        UNROLL for (int p = 0; p < parts; p++) column[p] = *(const wide *)(w + p * WIDE);
        UNROLL for (int r = 0; r < count; r++)
            UNROLL for (int p = 0; p < parts; p++) sum[r][p] += x[r * stride + k] * column[p];
    }
    UNROLL for (int r = 0; r < count; r++)
        UNROLL for (int p = 0; p < parts; p++) *(wide *)(sums + r * TILE_COLUMNS + p * WIDE) = sum[r][p];
}

#if defined(__AVX512BF16__)
#define HAS_BFLOAT 1
TILE_INLINE void bfloat_tile(const int count, const int parts, const bfloat *x, int64_t stride, const bfloat *w,
                             int64_t line, int64_t depth, float *sums)
{
    __m512 sum[ROWS][4];
    UNROLL for (int r = 0; r < count; r++)
        UNROLL for (int p = 0; p < parts; p++) sum[r][p] = _mm512_setzero_ps();
    for (int64_t k = 0; k < depth; k += 2, w += 2 * line) {
        __m512i column[4];
        UNROLL for (int p = 0; p < parts; p++) column[p] = _mm512_loadu_si512(w + 32 * p);
        UNROLL for (int r = 0; r < count; r++) {
            __m512i two = _mm512_set1_epi32((int32_t)*(const pair *)(x + r * stride + k));
            /* As in int8.h: with the intrinsic gcc copies the sums. */
            UNROLL for (int p = 0; p < parts; p++)
                __asm__("vdpbf16ps %2, %1, %0" : "+v"(sum[r][p]) : "v"(two), "v"(column[p]));
        }
    }
    UNROLL for (int r = 0; r < count; r++)
        UNROLL for (int p = 0; p < parts; p++) _mm512_storeu_ps(sums + r * TILE_COLUMNS + p * GROUP, sum[r][p]);
}
#else
#define HAS_BFLOAT 0
#endif

/* The sums (count, TILE_COLUMNS) of up to ROWS rows and `groups` groups of columns. */
#define TILE_CASE(NAME, COUNT, PART_COUNT) \
    case COUNT: NAME(COUNT, PART_COUNT, x, stride, w, line, depth, sums); break;
#if ROWS == 6
#define TILE_CASES(NAME, PART_COUNT)                                                                              \
    switch (count) {                                                                                              \
        TILE_CASE(NAME, 1, PART_COUNT) TILE_CASE(NAME, 2, PART_COUNT) TILE_CASE(NAME, 3, PART_COUNT)              \
        TILE_CASE(NAME, 4, PART_COUNT) TILE_CASE(NAME, 5, PART_COUNT) TILE_CASE(NAME, 6, PART_COUNT)              \
    }
#else
#define TILE_CASES(NAME, PART_COUNT)                                                                              \
    switch (count) {                                                                                              \
        TILE_CASE(NAME, 1, PART_COUNT) TILE_CASE(NAME, 2, PART_COUNT) TILE_CASE(NAME, 3, PART_COUNT)              \
        TILE_CASE(NAME, 4, PART_COUNT)                                                                            \
    }
#endif

static void float_sums(int count, int groups, const float *x, int64_t stride, const float *w, int64_t line, int64_t depth,
                       float *sums)
{
#if WIDE == 16
    switch (groups) {
    case 1: TILE_CASES(float_tile, 1) break;
    case 2: TILE_CASES(float_tile, 2) break;
    case 3: TILE_CASES(float_tile, 3) break;
    case 4: TILE_CASES(float_tile, 4) break;
    }
#else
    for (; groups; groups--, w += GROUP, sums += GROUP) TILE_CASES(float_tile, PARTS)
#endif
}

static void bfloat_sums(int count, int groups, const bfloat *x, int64_t stride, const bfloat *w, int64_t line, int64_t depth,
                        float *sums)
{
#if HAS_BFLOAT
    switch (groups) {
    case 1: TILE_CASES(bfloat_tile, 1) break;
    case 2: TILE_CASES(bfloat_tile, 2) break;
    case 3: TILE_CASES(bfloat_tile, 3) break;
    case 4: TILE_CASES(bfloat_tile, 4) break;
    }
#endif
}

/* The lanes below `count`, the rest zero. */
static inline lanes load_some(const float *x, int64_t count)
{
    if (count >= LANE_COUNT) return *(const lanes *)x;
    lanes found = {0};
    memcpy(&found, x, count * sizeof(float));
    return found;
}

/* 16 numbers rounded to bfloat16, to the nearest, ties to even. */
static inline void store_bfloats(bfloat *place, lanes x)
{
#if HAS_BFLOAT
    _mm256_storeu_si256((__m256i *)place, (__m256i)_mm512_cvtneps_pbh((__m512)x));
#endif
}
