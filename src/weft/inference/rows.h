/* Rows times a matrix of any kind: how rows are given to it, and the product. */

#pragma once

#include <stdint.h>

#include "int4.h"
#include "int8.h"
#include "layer.h"
#include "tiles.h"

/* Rows as a matrix of some kind takes them: floats, bfloat16, or bytes with a scale per row. */
struct given {
    const void *rows;
    float *scales;
    int64_t stride; /* from row to row, in elements */
};

/* Memory for `rows` of up to `depth` numbers, and their scales before them. */
static int64_t given_bytes(int64_t rows, int64_t depth) { return (rows * 4 + 63) / 64 * 64 + (rows * ((depth + 3) / 4 * 4) * 4 + 63) / 64 * 64; }

static struct given given_at(char *place, int64_t rows)
{
    return (struct given){place + (rows * 4 + 63) / 64 * 64, (float *)place, 0};
}

static void round_row(const float *x, bfloat *out, int64_t depth)
{
    int64_t d = 0;
    for (; d + LANE_COUNT <= depth; d += LANE_COUNT) store_bfloats(out + d, *(const lanes *)(x + d));
    if (d < depth) {
        bfloat last[LANE_COUNT];
        store_bfloats(last, load_some(x + d, depth - d));
        memcpy(out + d, last, (depth - d) * sizeof(bfloat));
    }
    if (depth % 2) out[depth] = 0;
}

static int64_t stride_of(const struct matrix *m)
{
    switch (m->kind) {
    case INT8_WEIGHTS: return int8_padded(m->depth);
    case INT4_WEIGHTS: return int4_stride(m->depth, m->group);
    case BFLOAT_WEIGHTS: return (m->depth + 1) / 2 * 2;
    default: return m->depth;
    }
}

/* One row of floats in the form of a matrix. */
static void give_row(const float *x, const struct matrix *m, const struct given *to, int64_t row, int64_t stride)
{
    if (m->kind == INT8_WEIGHTS)
        quantize_row(x, (uint8_t *)to->rows + row * stride, to->scales + row, m->depth, stride);
    else if (m->kind == INT4_WEIGHTS)
        int4_quantize_row(x, (uint8_t *)to->rows + row * stride, to->scales + row, m->depth, m->group);
    else if (m->kind == BFLOAT_WEIGHTS)
        round_row(x, (bfloat *)to->rows + row * stride, m->depth);
}

/* Rows that are `stride` floats apart, in the form that the matrix takes. */
static struct given give(const float *x, int64_t rows, int64_t stride, const struct matrix *m, const struct given *memory,
                         const struct member *me)
{
    if (m->kind == FLOAT_WEIGHTS) return (struct given){x, 0, stride};
    struct given found = {memory->rows, memory->scales, stride_of(m)};
    SHARED(row, rows) give_row(x + row * stride, m, &found, row, found.stride);
    meet(me);
    return found;
}

/* The rows of the residual stream, as a matrix takes them. The norm `after` the last part changes them; the norm `before`
   the next does not. Either may be NULL. */
static struct given enter(float *x, int64_t rows, int64_t width, const struct norm *after, const struct norm *before,
                          const struct matrix *m, const struct given *memory, const struct member *me)
{
    struct given found = {memory->rows, memory->scales, stride_of(m)};
    if (m->kind == FLOAT_WEIGHTS && !before) found = (struct given){x, 0, width};
    if (m->kind == FLOAT_WEIGHTS && !before && !after) return found;
    float normal[width];
    SHARED(row, rows) {
        float *one = x + row * width, *to = m->kind == FLOAT_WEIGHTS ? (float *)memory->rows + row * width : normal;
        if (after) normalize_one(after, one, one, width);
        if (before) normalize_one(before, one, to, width);
        give_row(before ? to : one, m, &found, row, found.stride);
    }
    meet(me);
    return found;
}

/* What the columns of a block have in common for all rows, with zeros beyond the last column. */
struct block_columns {
    int32_t starts[TILE_COLUMNS];
    float scales[TILE_COLUMNS], bias[TILE_COLUMNS];
};

static struct block_columns columns_of(const struct matrix *m, int64_t first, int64_t wide)
{
    struct block_columns found = {{0}, {0}, {0}};
    for (int64_t c = 0; c < wide; c++) {
        found.bias[c] = m->bias ? m->bias[first + c] : 0;
        if (m->kind != INT8_WEIGHTS) continue;
        found.starts[c] = (int32_t)(-(uint32_t)INT8_OFFSET * (uint32_t)m->sums[first + c]);
        found.scales[c] = m->scales[first + c];
    }
    return found;
}

/* Sums of one row as its numbers, stored in or added to `out`. */
static inline void finish_row(const void *sums, const struct matrix *m, float row_scale, const struct block_columns *columns,
                              float *out, int64_t wide, int add)
{
    lanes result[TILE_COLUMNS / LANE_COUNT];
    for (int c = 0; c < TILE_COLUMNS / LANE_COUNT; c++) {
        lanes bias = *(const lanes *)(columns->bias + c * LANE_COUNT);
        if (m->kind == INT8_WEIGHTS) {
            flags whole;
            memcpy(&whole, (const int32_t *)sums + c * LANE_COUNT, sizeof whole);
            lanes scale = row_scale * *(const lanes *)(columns->scales + c * LANE_COUNT);
            result[c] = __builtin_convertvector(whole, lanes) * scale + bias;
        } else if (m->kind == INT4_WEIGHTS) {
            result[c] = *((const lanes *)sums + c) * row_scale + bias;
        } else {
            result[c] = *((const lanes *)sums + c) + bias;
        }
    }
    if (wide == TILE_COLUMNS)
        for (int c = 0; c < TILE_COLUMNS / LANE_COUNT; c++) {
            if (add) result[c] += *((const lanes *)out + c);
            *((lanes *)out + c) = result[c];
        }
    else
        for (int64_t c = 0; c < wide; c++)
            out[c] = (add ? out[c] : 0) + result[c / LANE_COUNT][c % LANE_COUNT];
}

static inline void block_sums(const struct matrix *m, int count, const struct given *x, int64_t row, int64_t block,
                              const int32_t *starts, void *sums)
{
    int64_t at = row * x->stride, first = block * TILE_COLUMNS;
    if (m->kind == INT8_WEIGHTS)
        int8_block(count, (const uint8_t *)x->rows + at, x->stride, (const int8_t *)m->weights + first * x->stride, starts, sums);
    else if (m->kind == INT4_WEIGHTS)
        int4_block(count, m->depth, m->group, (const uint8_t *)x->rows + at, (const uint8_t *)m->weights + first * m->depth / 2,
                   m->scales + first * (m->depth / m->group), sums);
    else if (m->kind == BFLOAT_WEIGHTS)
        bfloat_sums(count, 4, (const bfloat *)x->rows + at, x->stride, (const bfloat *)m->weights + first * x->stride,
                    TILE_COLUMNS, m->depth, sums);
    else
        float_sums(count, 4, (const float *)x->rows + at, x->stride, (const float *)m->weights + first * m->depth,
                   TILE_COLUMNS, m->depth, sums);
}

/* out (rows, width) = x W + bias; with `add`, added to out. The activation is applied to the first `active` columns.
   Threads divide the blocks of columns; a block stays in the cache for all rows. Tiles have the same number of rows, or one
   less. */
static void product(const struct matrix *m, const struct given *x, int64_t rows, float *out, int add, int64_t active,
                    int activation, const struct member *me)
{
    int64_t height = m->kind == INT8_WEIGHTS || m->kind == INT4_WEIGHTS ? INT8_ROWS : ROWS;
    SHARED(block, (m->width + TILE_COLUMNS - 1) / TILE_COLUMNS) {
        int64_t first = block * TILE_COLUMNS;
        int64_t wide = m->width - first < TILE_COLUMNS ? m->width - first : TILE_COLUMNS;
        int64_t bent = active - first < wide ? active - first : wide;
        struct block_columns columns = columns_of(m, first, wide);
        int32_t sums[TILE_SUMS] __attribute__((aligned(64)));
        for (int64_t row = 0, left = (rows + height - 1) / height; left; left--) {
            int count = (int)((rows - row + left - 1) / left);
            block_sums(m, count, x, row, block, columns.starts, sums);
            for (int r = 0; r < count; r++, row++) {
                float *to = out + row * m->width + first;
                finish_row(sums + r * TILE_COLUMNS, m, x->scales ? x->scales[row] : 0, &columns, to, wide, add);
                if (bent > 0) activate(to, bent, activation);
            }
        }
    }
    meet(me);
}

/* Gates times the other half, in the gates' place: (rows, 2 · inner). */
static void multiply_gates(float *x, int64_t rows, int64_t inner, const struct member *me)
{
    SHARED(row, rows) {
        float *one = x + row * 2 * inner;
        for (int64_t d = 0; d < inner; d++) one[d] *= one[d + inner];
    }
    meet(me);
}
