/* A generation step on a CPU: products of a few rows with every weight, attention over pages, and whole decoder layers.

   A step computes `entries`: tokens at positions of rows. Decoding has one entry per row, a prompt several neighbouring
   ones. Every entry is computed as if it were alone, to the bit. See kernels.py.

   All layers run as one task of a team of threads (team.h), which share each loop and meet at its end. */

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "../inference/int4.h"
#include "../inference/int8.h"
#include "../inference/lanes.h"
#include "../inference/layer.h"
#include "../inference/product.h"

#define LOAD_ONE(to, from) (to)[0] = *(from)
#define NAME(name) name##_float
#define ELEMENT float
#define LOAD load_float
#define STORE store_float
#include "attention.h"
#undef NAME
#undef ELEMENT
#undef LOAD
#undef STORE
#undef LOAD_ONE
#define LOAD_ONE(to, from)                         \
    {                                              \
        half padded_half[LANE_COUNT] = {*(from)};       \
        *(lanes *)(to) = load_half(padded_half);   \
    }
#define NAME(name) name##_half
#define ELEMENT half
#define LOAD load_half
#define STORE store_half
#include "attention.h"

static int64_t padded(int64_t depth) { return (depth + 3) / 4 * 4; }

/* Bytes of scratch memory to quantize rows of x, for groups of at least 8. */
static int64_t quantized_bytes(int64_t rows, int64_t depth) { return rows * (int4_stride(padded(depth), 8) + (int64_t)sizeof(float)) + 64; }

static void product(const struct matrix *m, const float *x, float *out, int64_t rows, int add, void *scratch,
                    const struct member *me)
{
    if (m->kind == FLOAT_WEIGHTS) {
        multiply(x, m->weights, m->bias, out, rows, m->depth, m->width, add, me);
        return;
    }
    float *row_scales = scratch;
    uint8_t *quantized = (uint8_t *)(((uintptr_t)(row_scales + rows) + 63) & ~(uintptr_t)63);
    if (m->kind == INT4_WEIGHTS) {
        struct int4_matrix weights = {m->weights, m->scales, m->bias, m->depth, m->width, m->group};
        multiply_int4(&weights, x, quantized, row_scales, out, rows, add, me);
        return;
    }
    struct int8_matrix weights = {m->weights, m->scales, m->sums, m->bias, m->depth, m->width};
    quantize_rows(x, quantized, row_scales, rows, m->depth, padded(m->depth), me);
    multiply_int8(&weights, quantized, row_scales, out, rows, add, me);
}

static void normalize(const struct norm *norm, const float *x, float *out, int64_t rows, int64_t width, const struct member *me)
{
    SHARED(row, rows) normalize_one(norm, x + row * width, out + row * width, width);
    meet(me);
}

static inline float logistic(float x) { return logistics((lanes){0} + x)[0]; }

/* What all layers of a step share. */
struct step {
    struct pages pages, source;
    const int32_t *rows;      /* (entries): the row of each entry */
    const int64_t *positions; /* (entries): its position in its sequence */
    const int64_t *source_lengths; /* (rows) */
    const float *bias;        /* (heads, bias_stride): relative position bias, or NULL; column bias_last is distance 0 */
    int64_t bias_stride, bias_last;
    void *work, *scratch; /* of `work_floats` floats and `quantized_bytes` bytes */
    float *scores;            /* (threads, score_stride) */
    int64_t score_stride, entries;
    int threads, is_half; /* whether pages hold numbers of half precision */
};

/* Self-attention of every entry: its keys and values go into its page first, so that entries of one row see each other. */
static void attend_to_row(const struct layer *l, const struct step *s, const float *heads, float *mixed, int64_t layer_at,
                          int64_t window, const struct member *me)
{
    int64_t wide = l->head_width, all = (l->heads + 2 * l->shared) * wide, group = l->heads / l->shared;
    int64_t one_head = wide * PAGE, values_at = layer_at + l->shared * one_head;
    SHARED(entry, s->entries) {
        int64_t position = s->positions[entry];
        int32_t page = s->pages.tables[s->rows[entry] * s->pages.most_pages + position / PAGE];
        const float *k = heads + entry * all + l->heads * wide;
        (s->is_half ? store_token_half : store_token_float)(&s->pages, page, layer_at, position % PAGE, k,
                                                            k + l->shared * wide, l->shared, wide);
    }
    meet(me);
    TAKEN(task, s->entries * l->shared) {
        int64_t entry = task / l->shared, shared = task % l->shared, position = s->positions[entry];
        int64_t begin = window >= 0 && position > window ? position - window : 0;
        const int32_t *table = s->pages.tables + s->rows[entry] * s->pages.most_pages;
        float *scores = s->scores + me->rank * s->score_stride;
        for (int64_t head = shared * group; head < (shared + 1) * group; head++)
            (s->is_half ? attend_one_half : attend_one_float)(heads + entry * all + head * wide, &s->pages, table, layer_at + shared * one_head,
                       values_at + shared * one_head, s->bias ? s->bias + head * s->bias_stride + s->bias_last - position : 0,
                       scores, mixed + (entry * l->heads + head) * wide, begin, position + 1, wide, l->scale);
    }
    meet(me);
}

/* Cross-attention of every entry to its row's source. */
static void attend_to_source(const struct layer *l, const struct step *s, const float *q, float *mixed, int64_t layer_at, const struct member *me)
{
    int64_t wide = l->cross_head_width, one_head = wide * PAGE, values_at = layer_at + l->cross_heads * one_head;
    TAKEN(task, s->entries * l->cross_heads) {
        int64_t entry = task / l->cross_heads, head = task % l->cross_heads, row = s->rows[entry];
        (s->is_half ? attend_one_half : attend_one_float)(q + task * wide, &s->source, s->source.tables + row * s->source.most_pages, layer_at + head * one_head,
                   values_at + head * one_head, 0, s->scores + me->rank * s->score_stride, mixed + task * wide,
                   0, s->source_lengths[row], wide, l->cross_scale);
    }
    meet(me);
}

static void feed_forward(const struct layer *l, const struct step *s, const float *x, float *up, float *sum, const struct member *me)
{
    int64_t rows = s->entries, inner = l->inner * (l->gated ? 2 : 1);
    float *active = l->gated ? up + rows * inner : up;
    product(&l->up, x, up, rows, 0, s->scratch, me);
    SHARED(row, rows) {
        float *one = up + row * inner, *linear = one + l->inner;
        activate(one, l->inner, l->activation);
        if (l->gated)
            for (int64_t d = 0; d < l->inner; d++) active[row * l->inner + d] = one[d] * linear[d];
    }
    meet(me);
    product(&l->down, active, sum, rows, 1, s->scratch, me);
}

/* A layer and its place: `cos`, `sin`: (positions, head_width) tables, or NULL; `layer_at`, `source_at`: where the layer lies
   in a page; `window`: how many earlier tokens are seen, −1: all. */
struct placed_layer {
    const struct layer *layer;
    const float *cos, *sin;
    int64_t layer_at, source_at, window;
};

/* A whole decoder layer (model/block.py). Changes x (entries, width) in place. */
static void run(const struct placed_layer *placed, const struct step *s, float *x, const struct member *me)
{
    const struct layer *l = placed->layer;
    const float *cos = placed->cos, *sin = placed->sin;
    int64_t wide = l->head_width, all = (l->heads + 2 * l->shared) * wide, rows = s->entries;
    float *h = s->work, *heads = h + rows * l->width, *mixed = heads + rows * all;
    const float *given = x;
    if (!l->post && l->attention_norm.kind) normalize(&l->attention_norm, x, h, rows, l->width, me), given = h;
    product(&l->qkv, given, heads, rows, 0, s->scratch, me);
    SHARED(row, rows)
        for (int64_t head = 0; head < l->heads + l->shared; head++) {
            const struct norm *norm = head < l->heads ? &l->query_norm : &l->key_norm;
            float *one = heads + row * all + head * wide;
            if (norm->kind) normalize_one(norm, one, one, wide);
            if (cos) rotate(one, cos + s->positions[row] * wide, sin + s->positions[row] * wide, wide);
        }
    meet(me);
    attend_to_row(l, s, heads, mixed, placed->layer_at, placed->window, me);
    product(&l->out, mixed, x, rows, 1, s->scratch, me);
    if (l->post && l->attention_norm.kind) normalize(&l->attention_norm, x, x, rows, l->width, me);

    if (l->cross_query.weights) {
        float *q = h + rows * l->width, *seen = q + rows * l->cross_heads * l->cross_head_width;
        given = x;
        if (!l->post && l->cross_norm.kind) normalize(&l->cross_norm, x, h, rows, l->width, me), given = h;
        product(&l->cross_query, given, q, rows, 0, s->scratch, me);
        attend_to_source(l, s, q, seen, placed->source_at, me);
        product(&l->cross_out, seen, x, rows, 1, s->scratch, me);
        if (l->post && l->cross_norm.kind) normalize(&l->cross_norm, x, x, rows, l->width, me);
    }

    given = x;
    if (!l->post && l->feedforward_norm.kind) normalize(&l->feedforward_norm, x, h, rows, l->width, me), given = h;
    feed_forward(l, s, given, h + rows * l->width, x, me);
    if (l->post && l->feedforward_norm.kind) normalize(&l->feedforward_norm, x, x, rows, l->width, me);
}

/* From hidden states to logits: those of `count` entries, `picks`, go through the last norm (or none) and the matrix. */
struct output {
    struct norm norm;
    const struct matrix *matrix; /* NULL: the hidden states themselves, after the norm, go to `out` */
    const int64_t *picks;
    int64_t count, width;
    float scale;
    float *out;
};

static void finish(const struct output *o, const struct step *s, const float *x, const struct member *me)
{
    float *hidden = o->matrix ? s->work : o->out;
    SHARED(one, o->count) {
        const float *from = x + o->picks[one] * o->width;
        float *to = hidden + one * o->width;
        if (o->norm.kind)
            normalize_one(&o->norm, from, to, o->width);
        else
            memcpy(to, from, o->width * sizeof(float));
        if (o->scale != 1)
            for (int64_t d = 0; d < o->width; d++) to[d] *= o->scale;
    }
    meet(me);
    if (o->matrix) product(o->matrix, hidden, o->out, o->count, 0, s->scratch, me);
}

struct whole_step {
    const struct placed_layer *layers;
    int64_t count;
    const struct step *step;
    const struct output *output;
    float *x;
};

static void run_step(const struct member *me, const void *given)
{
    const struct whole_step *w = given;
    for (int64_t layer = 0; layer < w->count; layer++) run(w->layers + layer, w->step, w->x, me);
    finish(w->output, w->step, w->x, me);
}

void weft_run(const struct placed_layer *layers, int64_t count, const struct step *step, const struct output *output, float *x)
{
    struct whole_step whole = {layers, count, step, output, x};
    run_together(run_step, &whole, step->threads);
}

/* The parts under exported names. */

int64_t weft_quantized_bytes(int64_t rows, int64_t depth) { return quantized_bytes(rows, depth); }

struct single_product {
    const struct matrix *matrix;
    const float *x;
    float *out;
    int64_t rows;
    int add;
    void *scratch;
};

static void run_product(const struct member *me, const void *given)
{
    const struct single_product *p = given;
    product(p->matrix, p->x, p->out, p->rows, p->add, p->scratch, me);
}

void weft_multiply(const struct matrix *m, const float *x, float *out, int64_t rows, int add, void *scratch, int threads)
{
    struct single_product single = {m, x, out, rows, add, scratch};
    run_together(run_product, &single, threads);
}

/* Store keys and values (tokens, heads, width) of a whole source in the pages of `table`. */
void weft_store(const float *k, const float *v, void *store, int64_t page_size, const int32_t *table, int64_t layer_at,
                int64_t tokens, int64_t heads, int64_t width, int is_half)
{
    struct pages pages = {store, page_size, table, 0};
    for (int64_t token = 0; token < tokens; token++, k += heads * width, v += heads * width)
        (is_half ? store_token_half : store_token_float)(&pages, table[token / PAGE], layer_at, token % PAGE, k, v, heads,
                                                         width);
}

/* An LSTM's cell: gates (rows, 4, width) in torch's order i, f, g, o; state and output change in place. */
void weft_cell(const float *gates, float *h, float *c, int64_t rows, int64_t width)
{
    for (int64_t row = 0; row < rows; row++) {
        const float *i = gates + 4 * row * width, *f = i + width, *g = f + width, *o = g + width;
        for (int64_t d = 0; d < width; d++) {
            float next = logistic(f[d]) * c[row * width + d] + logistic(i[d]) * tanhf(g[d]);
            c[row * width + d] = next;
            h[row * width + d] = logistic(o[d]) * tanhf(next);
        }
    }
}
