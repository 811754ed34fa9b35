/* A few rows times a matrix of fp32 weights. A row's result is the same to the bit, however many other rows there are. */

#pragma once

#include <stdint.h>

#include "team.h"

/* multiply: the time is that of reading the matrix once, so it is stored in reading order: blocks of COLUMNS columns, the
   rows of a block one after another. A tile of ROWS rows of x stays in registers while a block is read; further tiles
   find the block in the cache. Threads divide the blocks. */

#define COLUMNS 64

#if defined(__AVX512F__)
#define WIDE 16 /* floats in a register */
#define PARTS 4 /* registers across a tile */
#define ROWS 6  /* rows of a tile: ROWS * PARTS sums, PARTS columns and a number of x fit the registers */
#elif defined(__AVX__)
#define WIDE 8
#define PARTS 2
#define ROWS 6
#else
#define WIDE 4
#define PARTS 4
#define ROWS 4
#endif
#define LANES (WIDE * PARTS)
#define AHEAD 8   /* rows of a block to prefetch */
#define STREAMS 4
#define UNROLL _Pragma("GCC unroll 8")

typedef float wide __attribute__((vector_size(WIDE * sizeof(float)), aligned(4), may_alias));

/* Row k of the block, for COUNT rows of x. */
#define ADD(COUNT, k)                                                                                      \
    {                                                                                                      \
        wide column[PARTS];                                                                                \
        UNROLL for (int p = 0; p < LANES; p += 16) __builtin_prefetch(w + ((k) + AHEAD) * COLUMNS + p);    \
        UNROLL for (int p = 0; p < PARTS; p++) column[p] = *(const wide *)(w + (k) * COLUMNS + p * WIDE);  \
        UNROLL for (int r = 0; r < COUNT; r++)                                                             \
            UNROLL for (int p = 0; p < PARTS; p++) sum[r][p] += x[r * depth + (k)] * column[p];            \
    }

/* Several streams are faster than one: a block is read at STREAMS places at a time. */
#define TILE(COUNT)                                                                                        \
    static void tile_##COUNT(const float *x, const float *w, int64_t depth, float *sums)                      \
    {                                                                                                      \
        wide sum[COUNT][PARTS] = {0};                                                                      \
        int64_t part = depth / STREAMS;                                                                       \
        for (int64_t k = 0; k < part; k++)                                                                    \
            UNROLL for (int64_t stream = 0; stream < STREAMS; stream++) ADD(COUNT, stream * part + k)         \
        for (int64_t k = STREAMS * part; k < depth; k++) ADD(COUNT, k)                                        \
        for (int r = 0; r < COUNT; r++)                                                                    \
            for (int p = 0; p < PARTS; p++) *(wide *)(sums + r * LANES + p * WIDE) = sum[r][p];            \
    }
TILE(1) TILE(2) TILE(3) TILE(4)
#if ROWS == 6
TILE(5) TILE(6)
#endif

static void tile(int count, const float *x, const float *w, int64_t depth, float *sums)
{
    switch (count) {
    case 1: tile_1(x, w, depth, sums); break;
    case 2: tile_2(x, w, depth, sums); break;
    case 3: tile_3(x, w, depth, sums); break;
    case 4: tile_4(x, w, depth, sums); break;
#if ROWS == 6
    case 5: tile_5(x, w, depth, sums); break;
    case 6: tile_6(x, w, depth, sums); break;
#endif
    }
}

/* out = x W (+ bias) (+ out). x (rows, depth), blocks (width / COLUMNS rounded up, depth, COLUMNS), bias (width) or
   NULL, out (rows, width). With `add`, the product is added to out. */
static void multiply(const float *x, const float *blocks, const float *bias, float *out, int64_t rows, int64_t depth, int64_t width,
              int add, const struct member *me)
{
    int64_t count = (width + COLUMNS - 1) / COLUMNS;
    SHARED(block, count) {
        float sums[ROWS * LANES] __attribute__((aligned(64)));
        for (int64_t row = 0; row < rows; row += ROWS) {
            int many = rows - row < ROWS ? rows - row : ROWS;
            for (int64_t part = 0; part < COLUMNS; part += LANES) {
                int64_t first = block * COLUMNS + part, last = first + LANES < width ? first + LANES : width;
                tile(many, x + row * depth, blocks + block * depth * COLUMNS + part, depth, sums);
                for (int r = 0; r < many; r++)
                    for (int64_t column = first; column < last; column++) {
                        float *place = out + (row + r) * width + column;
                        *place = sums[r * LANES + column - first] + (bias ? bias[column] : 0) + (add ? *place : 0);
                    }
            }
        }
    }
    meet(me);
}
