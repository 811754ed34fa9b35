/* The operations between a layer's matrix products, one pass over memory each, forward and backward. See fused_layers.py.

   Gradients of weights are summed within CHUNKS ranges of rows, in order, so the result does not depend on the number of
   threads. The dropout mask is a hash of the element's index: the backward pass recomputes it. */

#include "numbers.h"

#define CHUNKS 16
#define EACH_CHUNK                                                                   \
    _Pragma("omp parallel for num_threads(threads) schedule(static)") for (int64_t chunk = 0; chunk < CHUNKS; chunk++)
#define BEGIN (chunk * rows / CHUNKS)
#define END ((chunk + 1) * rows / CHUNKS)
#define SIMD _Pragma("omp simd")

int64_t weft_chunks(void) { return CHUNKS; }

/* RMSNorm: y = x scale gain, scale = 1 / √(mean x² + ε). `scales` receives the scale of each row. */
void weft_rms(const float *x, const float *gain, float *y, float *scales, int64_t rows, int64_t width, float epsilon,
              int threads)
{
    EACH_CHUNK for (int64_t row = BEGIN; row < END; row++) {
        const float *from = x + row * width;
        float *to = y + row * width, sum = 0;
#pragma omp simd reduction(+ : sum)
        for (int64_t i = 0; i < width; i++) sum += from[i] * from[i];
        float scale = 1.0f / sqrtf(sum / width + epsilon);
        SIMD for (int64_t i = 0; i < width; i++) to[i] = from[i] * scale * gain[i];
        scales[row] = scale;
    }
}

/* With n = x scale and u = grad gain:   out = scale (u − n mean(u n)) (+ more),   gains (CHUNKS, width) = Σ grad n. */
void weft_rms_backward(const float *grad, const float *x, const float *gain, const float *scales, const float *more,
                       float *out, float *gains, int64_t rows, int64_t width, int threads)
{
    EACH_CHUNK {
        float *partial = gains + chunk * width;
        memset(partial, 0, width * sizeof(float));
        for (int64_t row = BEGIN; row < END; row++) {
            const float *from = x + row * width, *up = grad + row * width, *add = more ? more + row * width : NULL;
            float *to = out + row * width, scale = scales[row], along = 0;
            SIMD for (int64_t i = 0; i < width; i++) partial[i] += up[i] * from[i] * scale;
#pragma omp simd reduction(+ : along)
            for (int64_t i = 0; i < width; i++) along += up[i] * gain[i] * from[i];
            float shared = along * scale * scale * scale / width;
            if (more)
                SIMD for (int64_t i = 0; i < width; i++) to[i] = add[i] + scale * up[i] * gain[i] - shared * from[i];
            else
                SIMD for (int64_t i = 0; i < width; i++) to[i] = scale * up[i] * gain[i] - shared * from[i];
        }
    }
}

/* LayerNorm of a sum: sum = x + mask s / keep,   y = (sum − mean) scale gain + bias. Without s, sum is not written. */
void weft_layer(const float *x, const float *s, const float *gain, const float *bias, float *sums, float *y,
                float *stats, int64_t rows, int64_t width, float epsilon, float keep, uint32_t seed,
                uint32_t threshold, int threads)
{
    const float rescale = 1.0f / keep;
    EACH_CHUNK for (int64_t row = BEGIN; row < END; row++) {
        const float *from = x + row * width;
        float *to = y + row * width, total = 0, spread = 0;
        if (s) {
            const float *other = s + row * width;
            float *both = sums + row * width;
            if (keep < 1.0f) {
                uint32_t row_seed = hash32(seed ^ hash32((uint32_t)row));
                SIMD for (int64_t i = 0; i < width; i++)
                    both[i] = from[i] + other[i] * dropout_factor(row_seed, i, threshold, rescale);
            } else
                SIMD for (int64_t i = 0; i < width; i++) both[i] = from[i] + other[i];
            from = both;
        }
#pragma omp simd reduction(+ : total)
        for (int64_t i = 0; i < width; i++) total += from[i];
        float mean = total / width;
#pragma omp simd reduction(+ : spread)
        for (int64_t i = 0; i < width; i++) spread += (from[i] - mean) * (from[i] - mean);
        float scale = 1.0f / sqrtf(spread / width + epsilon);
        if (bias)
            SIMD for (int64_t i = 0; i < width; i++) to[i] = (from[i] - mean) * scale * gain[i] + bias[i];
        else
            SIMD for (int64_t i = 0; i < width; i++) to[i] = (from[i] - mean) * scale * gain[i];
        stats[2 * row] = mean;
        stats[2 * row + 1] = scale;
    }
}

/* With n = (x − mean) scale and u = grad gain:   out = scale (u − mean u − n mean(u n)) (+ more);   dropped (the
   gradient of s with dropout) = mask out / keep;   gains, biases (CHUNKS, width). */
void weft_layer_backward(const float *grad, const float *x, const float *gain, const float *stats, const float *more,
                         float *out, float *dropped, float *gains, float *biases, int64_t rows, int64_t width,
                         float keep, uint32_t seed, uint32_t threshold, int threads)
{
    const float rescale = 1.0f / keep;
    EACH_CHUNK {
        float *gain_part = gains + chunk * width, *bias_part = biases + chunk * width;
        memset(gain_part, 0, width * sizeof(float));
        memset(bias_part, 0, width * sizeof(float));
        for (int64_t row = BEGIN; row < END; row++) {
            const float *from = x + row * width, *up = grad + row * width, *add = more ? more + row * width : NULL;
            float *to = out + row * width, mean = stats[2 * row], scale = stats[2 * row + 1], total = 0, along = 0;
#pragma omp simd reduction(+ : total, along)
            for (int64_t i = 0; i < width; i++) {
                float normal = (from[i] - mean) * scale, u = up[i] * gain[i];
                total += u;
                along += u * normal;
                gain_part[i] += up[i] * normal;
                bias_part[i] += up[i];
            }
            total /= width;
            along /= width;
            SIMD for (int64_t i = 0; i < width; i++)
                to[i] = scale * (up[i] * gain[i] - total - (from[i] - mean) * scale * along);
            if (more) SIMD for (int64_t i = 0; i < width; i++) to[i] += add[i];
            if (dropped) {
                float *less = dropped + row * width;
                uint32_t row_seed = hash32(seed ^ hash32((uint32_t)row));
                SIMD for (int64_t i = 0; i < width; i++)
                    less[i] = to[i] * dropout_factor(row_seed, i, threshold, rescale);
            }
        }
    }
}

/* SwiGLU: up (rows, 2 inner) -> a σ(a) b. */
void weft_gate(const float *up, float *y, int64_t rows, int64_t inner, int threads)
{
    EACH_CHUNK for (int64_t row = BEGIN; row < END; row++) {
        const float *a = up + row * 2 * inner, *b = a + inner;
        float *to = y + row * inner;
        SIMD for (int64_t i = 0; i < inner; i++) to[i] = a[i] / (1.0f + exp_fast(-a[i])) * b[i];
    }
}

void weft_gate_backward(const float *grad, const float *up, float *out, int64_t rows, int64_t inner, int threads)
{
    EACH_CHUNK for (int64_t row = BEGIN; row < END; row++) {
        const float *a = up + row * 2 * inner, *b = a + inner, *g = grad + row * inner;
        float *to_a = out + row * 2 * inner, *to_b = to_a + inner;
        SIMD for (int64_t i = 0; i < inner; i++) {
            float share = 1.0f / (1.0f + exp_fast(-a[i])), silu = a[i] * share;
            to_a[i] = g[i] * b[i] * share * (1.0f + a[i] - silu);
            to_b[i] = g[i] * silu;
        }
    }
}

/* x (rows, all, width) holds query heads, key heads, then value heads. Query and key heads are RMS-normalised (if there
   is a gain) and rotated by the position's angles: (x_i, x_{i + width/2}) = (a, b) -> (a cos − b sin, b cos + a sin).
   Value heads are copied. */
void weft_heads(const float *x, const float *query_gain, const float *key_gain, const float *cosine, const float *sine,
                float *y, float *scales, int64_t rows, int64_t queries, int64_t keys, int64_t all, int64_t width,
                float epsilon, int threads)
{
    int64_t half = width / 2, both = queries + keys;
    EACH_CHUNK for (int64_t row = BEGIN; row < END; row++) {
        const float *cos = cosine + row * width, *sin = sine + row * width;
        for (int64_t head = 0; head < both; head++) {
            const float *a = x + (row * all + head) * width, *b = a + half;
            const float *gain = head < queries ? query_gain : key_gain;
            float *to = y + (row * all + head) * width, *upper = to + half;
            if (gain) {
                float sum = 0;
#pragma omp simd reduction(+ : sum)
                for (int64_t i = 0; i < width; i++) sum += a[i] * a[i];
                float scale = 1.0f / sqrtf(sum / width + epsilon);
                scales[row * both + head] = scale;
                SIMD for (int64_t i = 0; i < half; i++) {
                    float low = a[i] * scale * gain[i], high = b[i] * scale * gain[half + i];
                    to[i] = low * cos[i] - high * sin[i];
                    upper[i] = high * cos[i] + low * sin[i];
                }
            } else
                SIMD for (int64_t i = 0; i < half; i++) {
                    float low = a[i], high = b[i];
                    to[i] = low * cos[i] - high * sin[i];
                    upper[i] = high * cos[i] + low * sin[i];
                }
        }
        memcpy(y + (row * all + both) * width, x + (row * all + both) * width, (all - both) * width * sizeof(float));
    }
}

/* gains (CHUNKS, 2, width): gradients of the query gain and of the key gain. */
void weft_heads_backward(const float *grad, const float *x, const float *query_gain, const float *key_gain,
                         const float *cosine, const float *sine, const float *scales, float *out, float *gains,
                         int64_t rows, int64_t queries, int64_t keys, int64_t all, int64_t width, int threads)
{
    int64_t half = width / 2, both = queries + keys;
    EACH_CHUNK {
        memset(gains + chunk * 2 * width, 0, 2 * width * sizeof(float));
        for (int64_t row = BEGIN; row < END; row++) {
            const float *cos = cosine + row * width, *sin = sine + row * width;
            for (int64_t head = 0; head < both; head++) {
                const float *g = grad + (row * all + head) * width, *from = x + (row * all + head) * width;
                const float *gain = head < queries ? query_gain : key_gain;
                float *to = out + (row * all + head) * width;
                SIMD for (int64_t i = 0; i < half; i++) { /* rotate back */
                    to[i] = g[i] * cos[i] + g[half + i] * sin[i];
                    to[half + i] = g[half + i] * cos[i] - g[i] * sin[i];
                }
                if (!gain) continue;
                float *partial = gains + (chunk * 2 + (head >= queries)) * width;
                float scale = scales[row * both + head], along = 0;
#pragma omp simd reduction(+ : along)
                for (int64_t i = 0; i < width; i++) {
                    along += to[i] * gain[i] * from[i];
                    partial[i] += to[i] * from[i] * scale;
                }
                float shared = along * scale * scale * scale / width;
                SIMD for (int64_t i = 0; i < width; i++) to[i] = scale * to[i] * gain[i] - shared * from[i];
            }
            memcpy(out + (row * all + both) * width, grad + (row * all + both) * width,
                   (all - both) * width * sizeof(float));
        }
    }
}
