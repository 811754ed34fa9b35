/* The end of a training step: the norm of a gradient's rows, and AdamW. See exact_update.py.

   The result for an element or a row does not depend on where it lies in memory, on what lies beside it or on the number
   of threads, so a shard of a weight gets the same bits as the whole weight. Products that are added are written as fma:
   the compiler must not choose differently for the last elements of an array. */

#include <math.h>
#include <stdint.h>

#define LANES 16

/* sums[r] = Σ x[r, i]² in double. */
void weft_row_squares(const float *x, double *sums, int64_t rows, int64_t width, int threads)
{
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t row = 0; row < rows; row++) {
        const float *from = x + row * width;
        double lanes[LANES] = {0}, sum = 0;
        int64_t i = 0;
        for (; i + LANES <= width; i += LANES)
            for (int lane = 0; lane < LANES; lane++) {
                double value = from[i + lane];
                lanes[lane] = fma(value, value, lanes[lane]);
            }
        for (int lane = 0; i < width; i++, lane++) lanes[lane] = fma((double)from[i], (double)from[i], lanes[lane]);
        for (int lane = 0; lane < LANES; lane++) sum += lanes[lane];
        sums[row] = sum;
    }
}

/* m ← m + (1 − β₁)(g − m),   v ← β₂ v + (1 − β₂) g²,   w ← decay w − rate m / (√v / correction + ε)
   rate: learning rate / (1 − β₁ᵗ). correction: √(1 − β₂ᵗ). decay: 1 − learning rate · weight decay. */
void weft_adamw(float *w, const float *g, float *m, float *v, int64_t count, float rate, float decay, float beta1,
                float beta2, float epsilon, float correction, int threads)
{
    const float share1 = 1 - beta1, share2 = 1 - beta2, scale = 1 / correction;
#pragma omp parallel for simd num_threads(threads) schedule(static)
    for (int64_t i = 0; i < count; i++) {
        m[i] = fmaf(share1, g[i] - m[i], m[i]);
        v[i] = fmaf(share2, g[i] * g[i], beta2 * v[i]);
        w[i] = fmaf(-rate, m[i] / fmaf(sqrtf(v[i]), scale, epsilon), decay * w[i]);
    }
}
