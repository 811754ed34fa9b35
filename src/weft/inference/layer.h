/* The parts of a layer: norms, rotary positions, activations, and how a layer is described (layer.py). */

#pragma once

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "lanes.h"

enum { FLOAT_WEIGHTS, INT8_WEIGHTS, BFLOAT_WEIGHTS, INT4_WEIGHTS };

/* x W + b. fp32: (blocks, depth, 64). int8 and int4: as in int8.h and int4.h. bf16: (blocks, depth / 2 rounded up, 64, 2). */
struct matrix {
    const void *weights;
    const float *bias, *scales; /* scales: int8 and int4 only */
    const int32_t *sums;        /* int8 only */
    int64_t depth, width, group; /* group: int4 only */
    int kind;
};

struct norm {
    const float *gain, *bias;
    float epsilon;
    int kind; /* 0 none, 1 LayerNorm, 2 RMSNorm */
};

/* Σ (x − mean)^power, power 1 or 2. The compiler must not choose the order of the sum, which would then depend on where
   the row lies in memory. */
static float sum_of(const float *x, float mean, int power, int64_t width)
{
    lanes sums = {0};
    float sum = 0;
    int64_t d = 0;
    for (; d + LANE_COUNT <= width; d += LANE_COUNT) {
        lanes rest = *(const lanes *)(x + d) - mean;
        if (power == 2) rest *= rest;
        sums += rest;
    }
    for (; d < width; d++) sum += power == 1 ? x[d] - mean : (x[d] - mean) * (x[d] - mean);
    for (int lane = 0; lane < LANE_COUNT; lane++) sum += sums[lane];
    return sum;
}

static void normalize_one(const struct norm *norm, const float *x, float *out, int64_t width)
{
    float mean = norm->kind == 1 ? sum_of(x, 0, 1, width) / width : 0;
    float scale = 1 / __builtin_sqrtf(sum_of(x, mean, 2, width) / width + norm->epsilon);
    if (norm->bias)
        for (int64_t d = 0; d < width; d++) out[d] = (x[d] - mean) * scale * norm->gain[d] + norm->bias[d];
    else
        for (int64_t d = 0; d < width; d++) out[d] = (x[d] - mean) * scale * norm->gain[d];
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

/* x Φ(x), to 1e-6: Φ(x) − ½ is x times a polynomial in x² below 5.5, where it is ½ to 2e-8. */
static inline lanes gelus(lanes x)
{
    static const float terms[] = {0.128551946f, -0.0641719736f, 0.0477355288f, -0.038804784f, 0.0321149136f,
                                  -0.025941756f, 0.0200215533f, -0.0153706943f, 0.0114464211f, -0.00630416078f,
                                  0.00245027291f, -0.00250136646f, 0.00260315431f, -0.000919981533f};
    lanes above = larger((lanes){0} - 5.5f, x), u = smaller((lanes){0} + 5.5f, above);
    lanes s = u * u * (2 / 30.25f) - 1, sum = (lanes){0} + terms[13];
    _Pragma("GCC unroll 16") for (int term = 12; term >= 0; term--) sum = sum * s + terms[term];
    return above * (u * sum + 0.5f);
}

/* tanh x = 2 / (1 + e⁻²ˣ) − 1 loses digits near 0, where the series takes over. */
static inline lanes tangents(lanes x)
{
    lanes square = x * x, far = 2 * logistics(2 * x) - 1;
    lanes near = x * (1 + square * (-0.33333333f + square * (0.13333333f + square * (-0.05396825f + square * 0.02186949f))));
    flags small = square < 0.04f;
    return (lanes)((small & (flags)near) | (~small & (flags)far));
}

/* f of `count` numbers, whatever their number. */
#define EACH(BODY)                                                                                    \
    for (int64_t i = 0; i < count; i += LANE_COUNT) {                                                 \
        lanes y = {0};                                                                                \
        int64_t size = (count - i < LANE_COUNT ? count - i : LANE_COUNT) * (int64_t)sizeof(float);    \
        if (size == sizeof y) y = *(const lanes *)(x + i); else memcpy(&y, x + i, size);              \
        BODY                                                                                          \
        if (size == sizeof y) *(lanes *)(x + i) = y; else memcpy(x + i, &y, size);                    \
    }

static void activate(float *x, int64_t count, int activation)
{
    switch (activation) {
    case 0: EACH(y = larger((lanes){0}, y);) break;
    case 1: EACH(y = larger((lanes){0}, y); y *= y;) break;
    case 2: EACH(y *= logistics(y);) break;
    case 3: /* (1 + tanh y) / 2 = 1 / (1 + e⁻²ʸ) */ EACH(y *= logistics(1.5957691216f * (y + 0.044715f * y * y * y));) break;
    case 4: EACH(y = gelus(y);) break;
    case 5: EACH(y = tangents(y);) break;
    }
}

struct layer {
    struct norm attention_norm, query_norm, key_norm, cross_norm, feedforward_norm;
    struct matrix qkv, out, cross_query, cross_key_value, cross_out, up, down; /* cross_query.weights NULL: no cross-attention */
    int64_t width, heads, shared, head_width, inner;
    int64_t cross_heads, cross_head_width;
    float scale, cross_scale;
    int post, gated, activation; /* 0 ReLU, 1 squared ReLU, 2 SiLU, 3 GELU by tanh, 4 GELU, 5 tanh */
};
