/* The parts of a generation step, at the speed of memory: a few rows times a matrix (`multiply`), attention of one query
   over its sequence (`attend`), and a whole layer (`run`). See kernels.py. */

#include <stdint.h>
#include <string.h>

#define LITTLE 32768 /* below this many multiplications, threads do not pay */

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
              int add, int threads)
{
    int64_t count = (width + COLUMNS - 1) / COLUMNS;
#pragma omp parallel for schedule(static) num_threads(threads) if (rows * depth * width > LITTLE)
    for (int64_t block = 0; block < count; block++) {
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
}

/* attend: out = softmax(q Kᵀ · scale + bias) V, each row over its own columns, from its beginning to `end`. */

/* eˣ for −87 ≤ x ≤ 0, to 2e-7: 2ⁿ is made from its bits, 2 to the remainder is a polynomial. */
static inline float exponential(float x)
{
    float y = x * 1.44269504f;
    int whole = (int)(y - 0.5f), bits = (whole + 127) << 23;
    float rest = y - whole, power;
    memcpy(&power, &bits, sizeof power);
    return power * (1 + rest * (0.69314718f + rest * (0.24022651f + rest * (0.05550411f +
                    rest * (0.00961813f + rest * (0.00133336f + rest * 0.00015403f))))));
}

static void attend_one(const float *q, const float *keys, const float *values, const float *bias, float *scores,
                       float *out, int64_t count, int64_t width, float scale)
{
    float most = -3e38f, total = 0;
    for (int64_t c = 0; c < count; c++) {
        float sum = 0;
#pragma omp simd reduction(+ : sum)
        for (int64_t d = 0; d < width; d++) sum += q[d] * keys[c * width + d];
        scores[c] = sum * scale + (bias ? bias[c] : 0);
        most = scores[c] > most ? scores[c] : most;
    }
    /* A separate loop, or the compiler does not vectorize the next one. */
    for (int64_t c = 0; c < count; c++) scores[c] = scores[c] - most < -87 ? -87 : scores[c] - most;
#pragma omp simd reduction(+ : total)
    for (int64_t c = 0; c < count; c++) total += scores[c] = exponential(scores[c]);
    for (int64_t d = 0; d < width; d++) out[d] = 0;
    int64_t c = 0;
    for (; c + 4 <= count; c += 4) {
        const float *v = values + c * width, *s = scores + c;
#pragma omp simd
        for (int64_t d = 0; d < width; d++)
            out[d] += s[0] * v[d] + s[1] * v[width + d] + s[2] * v[2 * width + d] + s[3] * v[3 * width + d];
    }
    for (; c < count; c++)
        for (int64_t d = 0; d < width; d++) out[d] += scores[c] * values[c * width + d];
    for (int64_t d = 0; d < width; d++) out[d] /= total;
}

/* q (rows * queries, heads, width) with a stride; keys and values (rows, shared, capacity, width), where each of
   the `shared` key heads serves heads / shared query heads; begins (rows); bias (heads, bias_stride) from column `first`
   on, or NULL; scores (rows * shared, capacity), scratch memory; out (rows * queries, heads, width). If k and v, (rows,
   shared, width) with a stride, are given, they are stored in the last column first. */
static void attend(const float *q, int64_t q_stride, const float *k, int64_t k_stride, const float *v, int64_t v_stride, float *keys,
            float *values, const int64_t *begins, const float *bias, int64_t bias_stride, float *scores, float *out, int64_t rows,
            int64_t queries, int64_t heads, int64_t shared, int64_t width, int64_t capacity, int64_t first, int64_t low, int64_t end,
            float scale, int threads)
{
    int64_t group = heads / shared;
#pragma omp parallel for schedule(static) num_threads(threads) if (rows * queries * heads * width * (end - low) > LITTLE)
    for (int64_t task = 0; task < rows * shared; task++) {
        int64_t row = task / shared, head = task % shared, start = begins[row] > low ? begins[row] : low;
        float *its_keys = keys + task * capacity * width, *its_values = values + task * capacity * width;
        if (k) {
            memcpy(its_keys + (end - 1) * width, k + row * k_stride + head * width, width * sizeof(float));
            memcpy(its_values + (end - 1) * width, v + row * v_stride + head * width, width * sizeof(float));
        }
        for (int64_t one = 0; one < queries * group; one++) {
            int64_t place = row * queries + one / group, by = head * group + one % group;
            attend_one(q + place * q_stride + by * width, its_keys + start * width, its_values + start * width,
                       bias ? bias + by * bias_stride + start - first : 0, scores + task * capacity,
                       out + (place * heads + by) * width, end - start, width, scale);
        }
    }
}

/* run: a whole layer (model/block.py), so that a step is one call per layer. */

struct norm {
    const float *gain, *bias;
    float epsilon;
    int kind; /* 0 none, 1 LayerNorm, 2 RMSNorm */
};

struct layer {
    struct norm attention_norm, query_norm, key_norm, feedforward_norm;
    const float *qkv, *qkv_bias, *out, *out_bias, *up, *up_bias, *down, *down_bias;
    int64_t width, heads, shared, head_width, inner;
    float scale;
    int post, gated, activation; /* 0 ReLU, 1 squared ReLU, 2 SiLU, 3 GELU by tanh */
};

static void normalize(const struct norm *norm, const float *x, float *out, int64_t rows, int64_t width)
{
    for (int64_t row = 0; row < rows; row++, x += width, out += width) {
        float mean = 0, square = 0;
        if (norm->kind == 1) {
#pragma omp simd reduction(+ : mean)
            for (int64_t d = 0; d < width; d++) mean += x[d];
            mean /= width;
        }
#pragma omp simd reduction(+ : square)
        for (int64_t d = 0; d < width; d++) square += (x[d] - mean) * (x[d] - mean);
        float scale = 1 / __builtin_sqrtf(square / width + norm->epsilon);
        if (norm->bias)
            for (int64_t d = 0; d < width; d++) out[d] = (x[d] - mean) * scale * norm->gain[d] + norm->bias[d];
        else
            for (int64_t d = 0; d < width; d++) out[d] = (x[d] - mean) * scale * norm->gain[d];
    }
}

/* Rotary positions: pairs (x_i, x_{i + half}) rotated by their angles. */
static void rotate(float *x, const float *cos, const float *sin, int64_t width)
{
    int64_t half = width / 2;
    for (int64_t d = 0; d < half; d++) {
        float a = x[d], b = x[d + half];
        x[d] = a * cos[d] - b * sin[d];
        x[d + half] = b * cos[d + half] + a * sin[d + half];
    }
}

/* 1 / (1 + e⁻ˣ) */
static inline float logistic(float x)
{
    float size = __builtin_fabsf(x), small = exponential(-(size > 87 ? 87 : size)), share = small / (1 + small);
    return x < 0 ? share : 1 - share;
}

static void activate(float *x, int64_t count, int activation)
{
    switch (activation) {
    case 0:
        for (int64_t i = 0; i < count; i++) x[i] = x[i] < 0 ? 0 : x[i];
        break;
    case 1:
        for (int64_t i = 0; i < count; i++) x[i] = x[i] < 0 ? 0 : x[i] * x[i];
        break;
    case 2:
#pragma omp simd
        for (int64_t i = 0; i < count; i++) x[i] *= logistic(x[i]);
        break;
    case 3: /* (1 + tanh y) / 2 = 1 / (1 + e⁻²ʸ) */
#pragma omp simd
        for (int64_t i = 0; i < count; i++)
            x[i] *= logistic(1.5957691216f * (x[i] + 0.044715f * x[i] * x[i] * x[i]));
        break;
    }
}

/* Changes x (rows, width) in place. work: scratch memory, rows * (width + all heads + heads + up's width) floats. */
void weft_run(const struct layer *l, float *x, float *work, const float *cos, const float *sin, float *keys, float *values,
         const int64_t *begins, const float *bias, int64_t bias_stride, float *scores, int64_t rows, int64_t capacity, int64_t first,
         int64_t low, int64_t end, int threads)
{
    int64_t wide = l->head_width, all = (l->heads + 2 * l->shared) * wide, inner = l->inner * (l->gated ? 2 : 1);
    float *h = work, *q = h + rows * l->width, *mixed = q + rows * all, *up = mixed + rows * l->heads * wide;
    const float *given = x;
    if (!l->post && l->attention_norm.kind) normalize(&l->attention_norm, x, h, rows, l->width), given = h;
    multiply(given, l->qkv, l->qkv_bias, q, rows, l->width, all, 0, threads);
    for (int64_t row = 0; row < rows; row++)
        for (int64_t head = 0; head < l->heads + l->shared; head++) {
            const struct norm *norm = head < l->heads ? &l->query_norm : &l->key_norm;
            float *one = q + row * all + head * wide;
            if (norm->kind) normalize(norm, one, one, 1, wide);
            if (cos) rotate(one, cos + row * wide, sin + row * wide, wide);
        }
    attend(q, all, q + l->heads * wide, all, q + (l->heads + l->shared) * wide, all, keys, values, begins, bias,
           bias_stride, scores, mixed, rows, 1, l->heads, l->shared, wide, capacity, first, low, end, l->scale, threads);
    multiply(mixed, l->out, l->out_bias, x, rows, l->heads * wide, l->width, 1, threads);
    if (l->post && l->attention_norm.kind) normalize(&l->attention_norm, x, x, rows, l->width);

    given = x;
    if (!l->post && l->feedforward_norm.kind) normalize(&l->feedforward_norm, x, h, rows, l->width), given = h;
    multiply(given, l->up, l->up_bias, up, rows, l->width, inner, 0, threads);
#pragma omp parallel for schedule(static) num_threads(threads) if (rows * inner > LITTLE / 8)
    for (int64_t row = 0; row < rows; row++) {
        float *active = up + row * inner, *linear = active + l->inner;
        activate(active, l->inner, l->activation);
        if (l->gated)
            for (int64_t d = 0; d < l->inner; d++) active[d] *= linear[d];
    }
    if (l->gated) /* remove the gaps between rows */
        for (int64_t row = 1; row < rows; row++) memmove(up + row * l->inner, up + row * inner, l->inner * sizeof(float));
    multiply(up, l->down, l->down_bias, x, rows, l->inner, l->width, 1, threads);
    if (l->post && l->feedforward_norm.kind) normalize(&l->feedforward_norm, x, x, rows, l->width);
}

/* The parts under exported names. */
void weft_multiply(const float *x, const float *blocks, const float *bias, float *out, int64_t rows, int64_t depth,
                   int64_t width, int add, int threads)
{
    multiply(x, blocks, bias, out, rows, depth, width, add, threads);
}

void weft_attend(const float *q, int64_t q_stride, const float *k, int64_t k_stride, const float *v, int64_t v_stride,
                 float *keys, float *values, const int64_t *begins, const float *bias, int64_t bias_stride, float *scores,
                 float *out, int64_t rows, int64_t queries, int64_t heads, int64_t shared, int64_t width,
                 int64_t capacity, int64_t first, int64_t low, int64_t end, float scale, int threads)
{
    attend(q, q_stride, k, k_stride, v, v_stride, keys, values, begins, bias, bias_stride, scores, out, rows, queries,
           heads, shared, width, capacity, first, low, end, scale, threads);
}
