/* Attention of one sequence: the queries of a group of heads to the keys and values that they share, in fp32 or bf16.

   Keys are transposed and values copied into the order in which tiles read them. Scores of a few queries at a time stay in
   the cache from the product with the keys over the softmax to the product with the values. */

#pragma once

#include "tiles.h"

struct attention {
    const float *q, *k, *v; /* of the first token; tokens are q_stride and k_stride floats apart, heads `wide` */
    float *out;
    int64_t q_stride, k_stride, out_stride, queries, keys, wide, group; /* group: query heads */
    const float *bias; /* of the first head, by key − query, or NULL; heads are bias_stride apart */
    int64_t bias_stride, window;  /* −1: no window */
    float scale;
    int causal, is_bfloat;
};

static inline int64_t round_up(int64_t count, int64_t unit) { return (count + unit - 1) / unit * unit; }

/* Floats of scratch memory. */
static int64_t attention_floats(int64_t keys, int64_t wide)
{
    int64_t columns = round_up(keys, GROUP), deep = round_up(wide, GROUP);
    return 2 * columns * deep + ROWS * (columns + deep);
}

/* 16 × 16 words, in place: halves are exchanged across the diagonal, then quarters, and so on. */
#define EXCHANGE(STEP, ...)                                                                       \
    _Pragma("GCC unroll 16") for (int i = 0; i < 16; i++) if (!(i & STEP)) {                      \
        flags low = {__VA_ARGS__}, high = low + STEP;                                             \
        lanes a = x[i], b = x[i + STEP];                                                          \
        x[i] = SHUFFLE(a, b, low), x[i + STEP] = SHUFFLE(a, b, high);                             \
    }
#if defined(__AVX512F__)
#define SHUFFLE(a, b, index) (lanes)_mm512_permutex2var_ps((__m512)(a), (__m512i)(index), (__m512)(b))
#else
static inline lanes SHUFFLE(lanes a, lanes b, flags index)
{
    lanes found;
    for (int i = 0; i < 16; i++) found[i] = index[i] < 16 ? a[index[i]] : b[index[i] - 16];
    return found;
}
#endif

static inline void transpose(lanes *x)
{
    EXCHANGE(8, 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23)
    EXCHANGE(4, 0, 1, 2, 3, 16, 17, 18, 19, 8, 9, 10, 11, 24, 25, 26, 27)
    EXCHANGE(2, 0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29)
    EXCHANGE(1, 0, 16, 2, 18, 4, 20, 6, 22, 8, 24, 10, 26, 12, 28, 14, 30)
}

/* Keys as (wide, columns); bf16: (wide / 2, columns, 2). Zeros beyond the last key and width. */
static void pack_keys(const struct attention *a, void *packed, int64_t columns, int64_t deep)
{
    for (int64_t key = 0; key < columns; key += GROUP)
        for (int64_t d = 0; d < deep; d += a->is_bfloat ? 2 * GROUP : GROUP) {
            lanes x[GROUP];
            for (int64_t one = 0; one < GROUP; one++) {
                const float *from = a->k + (key + one) * a->k_stride + d;
                if (key + one >= a->keys) {
                    x[one] = (lanes){0};
                } else if (a->is_bfloat) {
                    store_bfloats((bfloat *)(x + one), load_some(from, a->wide - d));
                    store_bfloats((bfloat *)(x + one) + GROUP, a->wide - d > GROUP ? load_some(from + GROUP, a->wide - d - GROUP) : (lanes){0});
                } else {
                    x[one] = load_some(from, a->wide - d);
                }
            }
            transpose(x);
            float *to = (float *)packed + (a->is_bfloat ? d / 2 : d) * columns + key;
            int64_t lines = a->is_bfloat && deep - d < 2 * GROUP ? (deep - d) / 2 : GROUP;
            for (int64_t line = 0; line < lines; line++, to += columns) *(lanes *)to = x[line];
        }
}

/* Values as (columns, deep); bf16: (columns / 2, deep, 2). */
static void pack_values(const struct attention *a, void *packed, int64_t columns, int64_t deep)
{
    for (int64_t key = 0; key < columns; key += 2)
        for (int64_t d = 0; d < deep; d += GROUP) {
            const float *from = a->v + key * a->k_stride + d;
            lanes first = key < a->keys ? load_some(from, a->wide - d) : (lanes){0};
            lanes second = key + 1 < a->keys ? load_some(from + a->k_stride, a->wide - d) : (lanes){0};
            if (!a->is_bfloat) {
                *(lanes *)((float *)packed + key * deep + d) = first;
                *(lanes *)((float *)packed + (key + 1) * deep + d) = second;
                continue;
            }
            bfloat two[2][GROUP];
            uint32_t both[GROUP];
            store_bfloats(two[0], first), store_bfloats(two[1], second);
            for (int i = 0; i < GROUP; i++) both[i] = two[0][i] | (uint32_t)two[1][i] << 16;
            memcpy((float *)packed + key / 2 * deep + d, both, sizeof both);
        }
}

/* Scores of one query to weights, in place, of the keys `begin` to `end`; those outside of them in the columns `first` to
   `last`, which are whole groups, get the weight 0. Returns 1 / the sum of the weights. bf16: the weights are stored as
   bfloat16. */
static float soften(float *scores, const float *bias, float scale, int64_t begin, int64_t end, int64_t first, int64_t last,
                    int is_bfloat)
{
    const lanes none = (lanes){0} - INFINITY, numbers = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    lanes most = none, total = {0};
    for (int64_t key = first; key < last; key += GROUP) {
        lanes score = *(const lanes *)(scores + key) * scale;
        if (bias) score += *(const lanes *)(bias + key);
        if (key < begin || key + GROUP > end) {
            flags seen = (numbers >= (float)(begin - key)) & (numbers < (float)(end - key));
            score = (lanes)((seen & (flags)score) | (~seen & (flags)none));
        }
        *(lanes *)(scores + key) = score;
        most = larger(score, most);
    }
    float largest = most[0], sum = 0;
    for (int i = 1; i < GROUP; i++) largest = most[i] > largest ? most[i] : largest;
    for (int64_t key = first; key < last; key += GROUP) {
        lanes weight = exponentials(larger((lanes){0} - 87.0f, *(const lanes *)(scores + key) - largest));
        if (key < begin || key + GROUP > end) {
            flags seen = (numbers >= (float)(begin - key)) & (numbers < (float)(end - key));
            weight = (lanes)(seen & (flags)weight);
        }
        total += weight;
        if (is_bfloat)
            store_bfloats((bfloat *)scores + key, weight);
        else
            *(lanes *)(scores + key) = weight;
    }
    for (int i = 0; i < GROUP; i++) sum += total[i];
    return sum == 0 ? 0 : 1 / sum;
}

/* The first and the last key that a query sees, and one beyond it. */
static inline int64_t first_seen(const struct attention *a, int64_t query)
{
    return a->window >= 0 && query > a->window ? query - a->window : 0;
}

static inline int64_t seen_end(const struct attention *a, int64_t query)
{
    int64_t end = a->causal ? query + 1 : a->window >= 0 ? query + a->window + 1 : a->keys;
    return end < a->keys ? end : a->keys;
}

/* Up to ROWS queries of one head. */
static void attend_rows(const struct attention *a, int64_t head, int64_t row, int count, const void *keys, const void *values,
                        float *scores, int64_t columns, int64_t deep)
{
    int64_t first = first_seen(a, row) / GROUP * GROUP, last = round_up(seen_end(a, row + count - 1), GROUP);
    const float *q = a->q + row * a->q_stride + head * a->wide;
    float *out = a->out + row * a->out_stride + head * a->wide;
    float sums[TILE_SUMS] __attribute__((aligned(64))), shares[ROWS];
    bfloat *rounded = (bfloat *)(scores + ROWS * columns);
    if (a->is_bfloat)
        for (int64_t r = 0; r < count; r++)
            for (int64_t d = 0; d < deep; d += GROUP)
                store_bfloats(rounded + r * deep + d, load_some(q + r * a->q_stride + d, a->wide - d));
    for (int64_t key = first; key < last; key += TILE_COLUMNS) {
        int groups = last - key < TILE_COLUMNS ? (last - key) / GROUP : TILE_COLUMNS / GROUP;
        if (a->is_bfloat)
            bfloat_sums(count, groups, rounded, deep, (const bfloat *)keys + 2 * key, columns, deep, sums);
        else
            float_sums(count, groups, q, a->q_stride, (const float *)keys + key, columns, a->wide, sums);
        for (int r = 0; r < count; r++)
            for (int group = 0; group < groups * GROUP; group += GROUP)
                *(lanes *)(scores + r * columns + key + group) = *(lanes *)(sums + r * TILE_COLUMNS + group);
    }
    for (int r = 0; r < count; r++)
        shares[r] = soften(scores + r * columns, a->bias ? a->bias + head * a->bias_stride - row - r : 0, a->scale,
                           first_seen(a, row + r), seen_end(a, row + r), first, last, a->is_bfloat);
    for (int64_t d = 0; d < deep; d += TILE_COLUMNS) {
        int groups = deep - d < TILE_COLUMNS ? (deep - d) / GROUP : TILE_COLUMNS / GROUP;
        if (a->is_bfloat)
            bfloat_sums(count, groups, (const bfloat *)scores + first, 2 * columns,
                        (const bfloat *)values + first * deep + 2 * d, deep, last - first, sums);
        else
            float_sums(count, groups, scores + first, columns, (const float *)values + first * deep + d, deep, last - first,
                       sums);
        int64_t many = a->wide - d < TILE_COLUMNS ? a->wide - d : TILE_COLUMNS;
        for (int r = 0; r < count; r++)
            for (int64_t c = 0; c < many; c++) out[r * a->out_stride + d + c] = sums[r * TILE_COLUMNS + c] * shares[r];
    }
}

static void attend(const struct attention *a, float *scratch)
{
    int64_t columns = round_up(a->keys, GROUP), deep = round_up(a->wide, GROUP);
    float *keys = scratch, *values = keys + columns * deep, *scores = values + columns * deep;
    pack_keys(a, keys, columns, deep);
    pack_values(a, values, columns, deep);
    for (int64_t head = 0; head < a->group; head++)
        for (int64_t left = (a->queries + ROWS - 1) / ROWS, row = 0; left; left--) {
            int count = (int)((a->queries - row + left - 1) / left);
            attend_rows(a, head, row, count, keys, values, scores, columns, deep);
            row += count;
        }
}
