/* Attention over concatenated sequences, forward and backward, with dropout on the weights. See fused_attention.py.

   Each thread takes one sequence and one key/value head with all query heads that share it. Scores of a tile of queries
   stay in the CPU cache; nothing of size length x length is written to memory. The backward pass recomputes the weights
   from the scores and the stored log Σ exp, and recomputes the dropout mask, which is a hash of the element's index.
   All products use one routine: C (+)= A B. */

#include <omp.h>

#include "numbers.h"

#if defined(__AVX512F__)
#define WIDE 16 /* floats per vector register */
#define ROWS 6
#elif defined(__AVX__)
#define WIDE 8
#define ROWS 4
#else
#define WIDE 4
#define ROWS 4
#endif
#define TILE 24 /* queries; a multiple of ROWS */
#define UNROLL _Pragma("GCC unroll 8")

typedef float wide __attribute__((vector_size(WIDE * sizeof(float)), aligned(4), may_alias));

/* COUNT rows and PARTS registers of C: the sum over k of a[row * across + k * along] b[k * width + column]. */
#define BLOCK(COUNT, PARTS)                                                                                      \
    static inline void block_##COUNT##_##PARTS(const float *a, int64_t across, int64_t along, const float *b,    \
                                               int64_t width, int64_t depth, float *c, int64_t stride, int add)  \
    {                                                                                                            \
        wide sum[COUNT][PARTS];                                                                                  \
        UNROLL for (int r = 0; r < COUNT; r++) UNROLL for (int p = 0; p < PARTS; p++)                            \
            sum[r][p] = add ? *(const wide *)(c + r * stride + p * WIDE) : (wide){0};                            \
        for (int64_t k = 0; k < depth; k++) {                                                                    \
            wide row[PARTS];                                                                                     \
            UNROLL for (int p = 0; p < PARTS; p++) row[p] = *(const wide *)(b + k * width + p * WIDE);           \
            UNROLL for (int r = 0; r < COUNT; r++) {                                                             \
                float x = a[r * across + k * along];                                                             \
                UNROLL for (int p = 0; p < PARTS; p++) sum[r][p] += x * row[p];                                  \
            }                                                                                                    \
        }                                                                                                        \
        UNROLL for (int r = 0; r < COUNT; r++) UNROLL for (int p = 0; p < PARTS; p++)                            \
            *(wide *)(c + r * stride + p * WIDE) = sum[r][p];                                                    \
    }
#define BLOCKS(COUNT) BLOCK(COUNT, 2) BLOCK(COUNT, 1)
BLOCKS(1) BLOCKS(2) BLOCKS(3) BLOCKS(4)
#if ROWS == 6
BLOCKS(5) BLOCKS(6)
#endif

#define CASE(COUNT)                                                                                              \
    case COUNT:                                                                                                  \
        for (; n + 2 * WIDE <= columns; n += 2 * WIDE)                                                           \
            block_##COUNT##_2(a, across, along, b + n, width, depth, c + n, stride, add);                        \
        for (; n < columns; n += WIDE)                                                                           \
            block_##COUNT##_1(a, across, along, b + n, width, depth, c + n, stride, add);                        \
        break;

/* `columns` is a multiple of WIDE. */
static void product(const float *a, int64_t across, int64_t along, const float *b, int64_t width, float *c,
                    int64_t stride, int64_t rows, int64_t columns, int64_t depth, int add)
{
    for (int64_t m = 0; m < rows; m += ROWS, a += ROWS * across, c += ROWS * stride) {
        int64_t n = 0;
        switch (rows - m < ROWS ? rows - m : ROWS) {
            CASE(1) CASE(2) CASE(3) CASE(4)
#if ROWS == 6
            CASE(5) CASE(6)
#endif
        }
    }
}

typedef struct {
    const int64_t *query_starts, *key_starts; /* offset of each sequence, and the total */
    int64_t sequences, heads, groups, width;  /* key heads; query heads per key head; head width */
    int64_t padded;                           /* longest key sequence, rounded up to a multiple of WIDE */
    int64_t window;                           /* visible tokens to each side; negative: all */
    int64_t causal;
    float scale, keep; /* scale of the scores; probability to keep a weight */
    uint32_t seed, threshold;
} Shape;

int64_t weft_wide(void) { return WIDE; }

/* Floats of scratch memory per thread. */
int64_t weft_scratch(const Shape *s) { return 2 * (s->width + TILE) * s->padded; }

/* The keys that query i attends to: [first, last). */
static inline void visible(const Shape *s, int64_t i, int64_t keys, int64_t *first, int64_t *last)
{
    *first = s->window >= 0 && i > s->window ? i - s->window : 0;
    *last = s->causal ? i + 1 : keys;
    if (s->window >= 0 && i + s->window + 1 < *last) *last = i + s->window + 1;
    if (*last > keys) *last = keys;
}

static inline int64_t round_up(int64_t n) { return (n + WIDE - 1) / WIDE * WIDE; }

/* Transpose (keys, width), `stride` apart, to (width, padded), filled up with zeros. */
static void transpose(const float *x, int64_t stride, int64_t keys, int64_t width, int64_t padded, float *out)
{
    int64_t whole = round_up(keys);
    for (int64_t d = 0; d < width; d++) {
        for (int64_t j = 0; j < keys; j++) out[d * padded + j] = x[j * stride + d];
        for (int64_t j = keys; j < whole; j++) out[d * padded + j] = 0;
    }
}

static inline uint32_t row_seed(const Shape *s, int64_t token, int64_t head)
{
    return hash32(s->seed ^ hash32((uint32_t)token * 0x9e3779b9U + (uint32_t)head));
}

/* `sums` (T, heads * groups) receives log Σ exp of each row of scores. `scratch`: weft_scratch floats per thread. */
void weft_attention(const float *q, int64_t q_stride, const float *k, int64_t k_stride, const float *v,
                    int64_t v_stride, float *out, float *sums, float *scratch, const Shape *s,
                    int threads)
{
    const int64_t all = s->heads * s->groups;
    const float scale = s->scale, rescale = 1.0f / s->keep; /* copies: for the compiler, a store to a row might change *s */
    const uint32_t threshold = s->threshold;
#pragma omp parallel for num_threads(threads) schedule(dynamic) collapse(2)
    for (int64_t n = 0; n < s->sequences; n++)
        for (int64_t head = 0; head < s->heads; head++) {
            float *keys_T = scratch + omp_get_thread_num() * weft_scratch(s), *scores = keys_T + s->width * s->padded;
            int64_t begin = s->query_starts[n], queries = s->query_starts[n + 1] - begin;
            int64_t key_begin = s->key_starts[n], keys = s->key_starts[n + 1] - key_begin;
            const float *values = v + key_begin * v_stride + head * s->width;
            transpose(k + key_begin * k_stride + head * s->width, k_stride, keys, s->width, s->padded, keys_T);
            for (int64_t member = head * s->groups; member < (head + 1) * s->groups; member++)
                for (int64_t i = 0; i < queries; i += TILE) {
                    int64_t rows = queries - i < TILE ? queries - i : TILE, low, high, skip;
                    visible(s, i, keys, &low, &skip);
                    visible(s, i + rows - 1, keys, &skip, &high);
                    low = low / WIDE * WIDE;
                    product(q + (begin + i) * q_stride + member * s->width, q_stride, 1, keys_T + low, s->padded,
                            scores + low, s->padded, rows, round_up(high) - low, s->width, 0);
                    for (int64_t r = 0; r < rows; r++) {
                        float *row = scores + r * s->padded, most = -INFINITY, sum = 0;
                        int64_t first, last;
                        visible(s, i + r, keys, &first, &last);
#pragma omp simd reduction(max : most)
                        for (int64_t j = first; j < last; j++) most = row[j] > most ? row[j] : most;
#pragma omp simd reduction(+ : sum)
                        for (int64_t j = first; j < last; j++) {
                            row[j] = exp_fast((row[j] - most) * scale);
                            sum += row[j];
                        }
                        sums[(begin + i + r) * all + member] = most * scale + logf(sum);
                        float share = 1.0f / sum;
                        if (s->keep < 1.0f) {
                            uint32_t seed = row_seed(s, begin + i + r, member);
#pragma omp simd
                            for (int64_t j = first; j < last; j++)
                                row[j] *= share * dropout_factor(seed, j, threshold, rescale);
                        } else {
#pragma omp simd
                            for (int64_t j = first; j < last; j++) row[j] *= share;
                        }
                        for (int64_t j = low; j < first; j++) row[j] = 0;
                        for (int64_t j = last; j < high; j++) row[j] = 0;
                    }
                    product(scores + low, s->padded, 1, values + low * v_stride, v_stride,
                            out + ((begin + i) * all + member) * s->width, all * s->width, rows, s->width, high - low,
                            0);
                }
        }
}

/* Gradients of q, k and v, given the gradient of `out`. */
void weft_attention_backward(const float *q, int64_t q_stride, const float *k, int64_t k_stride, const float *v,
                             int64_t v_stride, const float *out, const float *sums, const float *grad, float *grad_q,
                             int64_t grad_q_stride, float *grad_k, int64_t grad_k_stride, float *grad_v,
                             int64_t grad_v_stride, float *scratch, const Shape *s, int threads)
{
    const int64_t all = s->heads * s->groups, flat = all * s->width;
    const float scale = s->scale, rescale = 1.0f / s->keep;
    const uint32_t threshold = s->threshold;
#pragma omp parallel for num_threads(threads) schedule(dynamic) collapse(2)
    for (int64_t n = 0; n < s->sequences; n++)
        for (int64_t head = 0; head < s->heads; head++) {
            float *keys_T = scratch + omp_get_thread_num() * weft_scratch(s), *values_T = keys_T + s->width * s->padded;
            float *weights = values_T + s->width * s->padded, *grad_scores = weights + TILE * s->padded;
            int64_t begin = s->query_starts[n], queries = s->query_starts[n + 1] - begin;
            int64_t key_begin = s->key_starts[n], keys = s->key_starts[n + 1] - key_begin;
            const float *own_keys = k + key_begin * k_stride + head * s->width;
            float *into_k = grad_k + key_begin * grad_k_stride + head * s->width;
            float *into_v = grad_v + key_begin * grad_v_stride + head * s->width;
            transpose(own_keys, k_stride, keys, s->width, s->padded, keys_T);
            transpose(v + key_begin * v_stride + head * s->width, v_stride, keys, s->width, s->padded, values_T);
            for (int64_t j = 0; j < keys; j++) {
                memset(into_k + j * grad_k_stride, 0, s->width * sizeof(float));
                memset(into_v + j * grad_v_stride, 0, s->width * sizeof(float));
            }
            for (int64_t member = head * s->groups; member < (head + 1) * s->groups; member++)
                for (int64_t i = 0; i < queries; i += TILE) {
                    int64_t rows = queries - i < TILE ? queries - i : TILE, low, high, skip;
                    visible(s, i, keys, &low, &skip);
                    visible(s, i + rows - 1, keys, &skip, &high);
                    low = low / WIDE * WIDE;
                    const float *query = q + (begin + i) * q_stride + member * s->width;
                    int64_t place = ((begin + i) * all + member) * s->width;
                    product(query, q_stride, 1, keys_T + low, s->padded, weights + low, s->padded, rows,
                            round_up(high) - low, s->width, 0);
                    product(grad + place, flat, 1, values_T + low, s->padded, grad_scores + low, s->padded, rows,
                            round_up(high) - low, s->width, 0);
                    for (int64_t r = 0; r < rows; r++) {
                        float *weight = weights + r * s->padded, *grad_score = grad_scores + r * s->padded, along = 0;
                        const float *mine = out + place + r * flat, *wanted = grad + place + r * flat;
                        int64_t first, last;
                        visible(s, i + r, keys, &first, &last);
#pragma omp simd reduction(+ : along)
                        for (int64_t d = 0; d < s->width; d++) along += mine[d] * wanted[d];
                        float sum = sums[(begin + i + r) * all + member];
                        if (s->keep < 1.0f) {
                            uint32_t seed = row_seed(s, begin + i + r, member);
#pragma omp simd
                            for (int64_t j = first; j < last; j++) {
                                float share = exp_fast(weight[j] * scale - sum);
                                float kept = dropout_factor(seed, j, threshold, rescale);
                                grad_score[j] = share * (grad_score[j] * kept - along) * scale;
                                weight[j] = share * kept;
                            }
                        } else {
#pragma omp simd
                            for (int64_t j = first; j < last; j++) {
                                float share = exp_fast(weight[j] * scale - sum);
                                grad_score[j] = share * (grad_score[j] - along) * scale;
                                weight[j] = share;
                            }
                        }
                        for (int64_t j = low; j < first; j++) weight[j] = grad_score[j] = 0;
                        for (int64_t j = last; j < high; j++) weight[j] = grad_score[j] = 0;
                    }
                    product(weights + low, 1, s->padded, grad + place, flat, into_v + low * grad_v_stride,
                            grad_v_stride, high - low, s->width, rows, 1);
                    product(grad_scores + low, 1, s->padded, query, q_stride, into_k + low * grad_k_stride, grad_k_stride,
                            high - low, s->width, rows, 1);
                    product(grad_scores + low, s->padded, 1, own_keys + low * k_stride, k_stride,
                            grad_q + (begin + i) * grad_q_stride + member * s->width, grad_q_stride, rows, s->width,
                            high - low, 0);
                }
        }
}
