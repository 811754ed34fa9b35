/* The forward pass of a stack on a CPU: every layer of every sequence of a flat batch in one call.

   Sequences are independent, so threads take chunks of whole sequences and run all layers on each: no thread waits for
   another, and what passes between the parts of a layer stays in the cache. A batch of a few rows is one chunk that
   the threads share. A row's result is the same to the bit in both, alone or in any batch. See stack_kernel.py. */

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "flat_attention.h"
#include "int8.h"
#include "layer.h"
#include "rows.h"

/* A layer and what it sees. `cos`, `sin`: (positions, head_width) tables, or NULL; `window`: −1: all. */
struct seen_layer {
    const struct layer *layer;
    const float *cos, *sin;
    int64_t window;
};

/* x = scale · tokens[id] + positions[position + offset] + segments[segment], then the norm. */
struct embedding {
    const void *tokens; /* fp32, or int8 with token_scales */
    const float *token_scales, *positions, *segments;
    int64_t vocabulary, position_count, offset, segment_count;
    float scale;
    struct norm norm;
};

struct stack {
    const struct seen_layer *layers;
    int64_t count, width;
    struct norm norm; /* after the last layer */
    int causal, is_bfloat; /* is_bfloat: attention in bfloat16 */
};

struct batch {
    const int64_t *starts, *source_starts; /* (sequences + 1) */
    int64_t sequences;
    const int64_t *tokens, *positions, *segments; /* (rows); segments may be NULL */
    const float *memory; /* the source's rows, of a decoder with cross-attention */
    const float *bias;   /* (heads, bias_stride), column bias_zero is distance 0, or NULL */
    int64_t bias_stride, bias_zero, angles; /* angles: positions in the tables of cos and sin, or 0 */
    float *x;    /* (rows, width): the result */
    char *room;  /* `threads` times `room_bytes` */
    int64_t room_bytes;
    int threads;
};

/* Memory of a chunk: what the layers of some rows write. */
struct room {
    struct given given;
    float *inside;  /* (rows, widest): heads, or the feed-forward layer's inner values */
    float *mixed;   /* (rows, heads · head_width) */
    float *source;  /* keys and values of the source */
    float *attention; /* of each member; attention_floats apart */
    int64_t attention_floats;
};

struct sizes {
    int64_t given, inside, mixed, source, attention, total;
};

static struct sizes sizes_of(const struct stack *s, int64_t rows, int64_t source_rows, int64_t longest, int members)
{
    int64_t widest = 0, deepest = s->width, mixed = 0, source = 0, attention = 0;
    for (int64_t i = 0; i < s->count; i++) {
        const struct layer *l = s->layers[i].layer;
#define MOST(place, value) place = (value) > place ? (value) : place
        MOST(widest, l->qkv.width);
        MOST(widest, l->up.width);
        MOST(deepest, l->inner);
        MOST(mixed, l->heads * l->head_width);
        MOST(attention, attention_floats(longest, l->head_width));
        if (!l->cross_query.weights) continue;
        MOST(widest, l->cross_query.width);
        MOST(mixed, l->cross_heads * l->cross_head_width);
        MOST(source, l->cross_key_value.width);
        MOST(attention, attention_floats(longest, l->cross_head_width));
    }
    MOST(deepest, mixed);
    int64_t most = rows > source_rows ? rows : source_rows;
    struct sizes found = {given_bytes(most, deepest), rows * widest * 4, rows * mixed * 4, source_rows * source * 4,
                          round_up(attention * 4, 64), 0};
    found.inside = round_up(found.inside, 64), found.mixed = round_up(found.mixed, 64), found.source = round_up(found.source, 64);
    found.total = found.given + found.inside + found.mixed + found.source + members * found.attention;
    return found;
}

static struct room room_at(char *place, const struct sizes *sizes, int64_t rows)
{
    char *inside = place + sizes->given, *mixed = inside + sizes->inside, *source = mixed + sizes->mixed;
    return (struct room){given_at(place, rows), (float *)inside, (float *)mixed, (float *)source,
                         (float *)(source + sizes->source), sizes->attention / 4};
}

/* A chunk: rows of whole sequences. */
struct chunk {
    const struct stack *stack;
    const struct batch *batch;
    struct room room;
    int64_t first, end; /* sequences */
    int64_t row, rows;
    float *x;
};

/* Norms and rotations of queries and keys. */
static void prepare_heads(const struct chunk *c, const struct seen_layer *placed, const struct member *me)
{
    const struct layer *l = placed->layer;
    if (!placed->cos && !l->query_norm.kind && !l->key_norm.kind) return;
    int64_t wide = l->head_width, all = (l->heads + 2 * l->shared) * wide;
    SHARED(row, c->rows)
        for (int64_t head = 0; head < l->heads + l->shared; head++) {
            const struct norm *norm = head < l->heads ? &l->query_norm : &l->key_norm;
            float *one = c->room.inside + row * all + head * wide;
            int64_t position = c->batch->positions[c->row + row];
            if (norm->kind) normalize_one(norm, one, one, wide);
            if (placed->cos) rotate(one, placed->cos + position * wide, placed->sin + position * wide, wide);
        }
    meet(me);
}

static void attend_to_self(const struct chunk *c, const struct seen_layer *placed, const struct member *me)
{
    const struct layer *l = placed->layer;
    const struct batch *b = c->batch;
    int64_t wide = l->head_width, all = (l->heads + 2 * l->shared) * wide, group = l->heads / l->shared;
    TAKEN(task, (c->end - c->first) * l->shared) {
        int64_t sequence = c->first + task / l->shared, shared = task % l->shared, row = b->starts[sequence] - c->row;
        const float *heads = c->room.inside + row * all;
        struct attention one = {
            .q = heads + shared * group * wide,
            .k = heads + (l->heads + shared) * wide,
            .v = heads + (l->heads + l->shared + shared) * wide,
            .out = c->room.mixed + row * l->heads * wide + shared * group * wide,
            .q_stride = all, .k_stride = all, .out_stride = l->heads * wide,
            .queries = b->starts[sequence + 1] - b->starts[sequence], .keys = b->starts[sequence + 1] - b->starts[sequence],
            .wide = wide, .group = group,
            .bias = b->bias ? b->bias + shared * group * b->bias_stride + b->bias_zero : 0, .bias_stride = b->bias_stride,
            .window = placed->window, .scale = l->scale, .causal = c->stack->causal, .is_bfloat = c->stack->is_bfloat,
        };
        attend(&one, c->room.attention + me->rank * c->room.attention_floats);
    }
    meet(me);
}

static void attend_to_source(const struct chunk *c, const struct layer *l, const struct member *me)
{
    const struct batch *b = c->batch;
    int64_t wide = l->cross_head_width, all = l->cross_heads * wide, base = b->source_starts[c->first];
    TAKEN(task, (c->end - c->first) * l->cross_heads) {
        int64_t sequence = c->first + task / l->cross_heads, head = task % l->cross_heads;
        int64_t row = b->starts[sequence] - c->row, source = b->source_starts[sequence];
        const float *k = c->room.source + (source - base) * 2 * all + head * wide;
        struct attention one = {
            .q = c->room.inside + row * all + head * wide, .k = k, .v = k + all,
            .out = c->room.mixed + row * all + head * wide,
            .q_stride = all, .k_stride = 2 * all, .out_stride = all,
            .queries = b->starts[sequence + 1] - b->starts[sequence], .keys = b->source_starts[sequence + 1] - source,
            .wide = wide, .group = 1, .window = -1, .scale = l->cross_scale, .is_bfloat = c->stack->is_bfloat,
        };
        attend(&one, c->room.attention + me->rank * c->room.attention_floats);
    }
    meet(me);
}

/* A whole layer (model/block.py). `after`: the norm of the layer below, if it is post-norm, or NULL. Returns that of this one. */
static const struct norm *run_layer(const struct chunk *c, const struct seen_layer *placed, const struct norm *after,
                                    const struct member *me)
{
    const struct layer *l = placed->layer;
    const struct room *room = &c->room;
    int64_t rows = c->rows, width = l->width, mixed = l->heads * l->head_width;
    float *x = c->x;
    const struct norm *none = 0;
#define BEFORE(norm) (!l->post && l->norm.kind ? &l->norm : none)
#define AFTER(norm) (l->post && l->norm.kind ? &l->norm : none)
    struct given given = enter(x, rows, width, after, BEFORE(attention_norm), &l->qkv, &room->given, me);
    product(&l->qkv, &given, rows, room->inside, 0, 0, 0, me);
    prepare_heads(c, placed, me);
    attend_to_self(c, placed, me);
    given = give(room->mixed, rows, mixed, &l->out, &room->given, me);
    product(&l->out, &given, rows, x, 1, 0, 0, me);
    after = AFTER(attention_norm);

    if (l->cross_query.weights) {
        int64_t base = c->batch->source_starts[c->first], source_rows = c->batch->source_starts[c->end] - base;
        int64_t all = l->cross_heads * l->cross_head_width;
        given = give((float *)c->batch->memory + base * width, source_rows, width, &l->cross_key_value, &room->given, me);
        product(&l->cross_key_value, &given, source_rows, room->source, 0, 0, 0, me);
        given = enter(x, rows, width, after, BEFORE(cross_norm), &l->cross_query, &room->given, me);
        product(&l->cross_query, &given, rows, room->inside, 0, 0, 0, me);
        attend_to_source(c, l, me);
        given = give(room->mixed, rows, all, &l->cross_out, &room->given, me);
        product(&l->cross_out, &given, rows, x, 1, 0, 0, me);
        after = AFTER(cross_norm);
    }

    given = enter(x, rows, width, after, BEFORE(feedforward_norm), &l->up, &room->given, me);
    product(&l->up, &given, rows, room->inside, 0, l->inner, l->activation, me);
    if (l->gated) multiply_gates(room->inside, rows, l->inner, me);
    given = give(room->inside, rows, l->up.width, &l->down, &room->given, me);
    product(&l->down, &given, rows, x, 1, 0, 0, me);
    return AFTER(feedforward_norm);
}

static void embed(const struct embedding *e, const struct chunk *c, const struct member *me)
{
    const struct batch *b = c->batch;
    int64_t width = c->stack->width;
    SHARED(row, c->rows) {
        float *to = c->x + row * width;
        int64_t token = b->tokens[c->row + row];
        if (e->token_scales) {
            const int8_t *from = (const int8_t *)e->tokens + token * width;
            for (int64_t d = 0; d < width; d++) to[d] = from[d] * e->token_scales[token] * e->scale;
        } else {
            const float *from = (const float *)e->tokens + token * width;
            for (int64_t d = 0; d < width; d++) to[d] = from[d] * e->scale;
        }
        if (e->positions) {
            const float *from = e->positions + (b->positions[c->row + row] + e->offset) * width;
            for (int64_t d = 0; d < width; d++) to[d] += from[d];
        }
        if (e->segments) {
            const float *from = e->segments + (b->segments ? b->segments[c->row + row] : 0) * width;
            for (int64_t d = 0; d < width; d++) to[d] += from[d];
        }
        if (e->norm.kind) normalize_one(&e->norm, to, to, width);
    }
    meet(me);
}

static void run_chunk(const struct embedding *e, const struct chunk *c, const struct member *me)
{
    const struct norm *after = 0;
    const struct stack *s = c->stack;
    embed(e, c, me);
    for (int64_t layer = 0; layer < s->count; layer++) after = run_layer(c, s->layers + layer, after, me);
    SHARED(row, c->rows) {
        float *x = c->x + row * s->width;
        if (after) normalize_one(after, x, x, s->width);
        if (s->norm.kind) normalize_one(&s->norm, x, x, s->width);
    }
    meet(me);
}

struct whole_batch {
    const struct stack *stack;
    const struct embedding *embedding;
    const struct batch *batch;
    const int64_t *cuts; /* the first sequence of each chunk, and the number of sequences */
    int64_t chunks;
};

static int64_t longest_of(const struct batch *b, int64_t first, int64_t end)
{
    int64_t longest = 0;
    for (int64_t i = first; i < end; i++) {
        MOST(longest, b->starts[i + 1] - b->starts[i]);
        if (b->source_starts) MOST(longest, b->source_starts[i + 1] - b->source_starts[i]);
    }
    return longest;
}

static void run_one(const struct whole_batch *w, int64_t number, char *place, const struct member *me)
{
    const struct batch *b = w->batch;
    int64_t first = w->cuts[number], end = w->cuts[number + 1], row = b->starts[first], rows = b->starts[end] - row;
    int64_t source_rows = b->source_starts ? b->source_starts[end] - b->source_starts[first] : 0;
    struct sizes sizes = sizes_of(w->stack, rows, source_rows, longest_of(b, first, end), me->size);
    struct chunk chunk = {w->stack, b, room_at(place, &sizes, rows > source_rows ? rows : source_rows), first, end, row, rows,
                          b->x + row * w->stack->width};
    run_chunk(w->embedding, &chunk, me);
}

static void run_batch(const struct member *me, const void *given)
{
    const struct whole_batch *w = given;
    if (w->chunks == 1) {
        run_one(w, 0, w->batch->room, me);
        return;
    }
    TAKEN(chunk, w->chunks) {
        struct team alone = {0};
        struct member single = {&alone, 0, 1};
        run_one(w, chunk, w->batch->room + me->rank * w->batch->room_bytes, &single);
    }
    meet(me);
}

/* Bytes of memory for a chunk that `members` threads share. */
int64_t weft_room_bytes(const struct stack *stack, int64_t rows, int64_t source_rows, int64_t longest, int members)
{
    return round_up(sizes_of(stack, rows, source_rows, longest, members).total, 4096);
}

/* Returns 0; 1 if a token or a segment is not in its table, 2 if a position is not. `cuts` (chunks + 1). */
int weft_forward(const struct stack *stack, const struct embedding *embedding, const struct batch *batch,
                 const int64_t *cuts, int64_t chunks)
{
    const struct embedding *e = embedding;
    for (int64_t row = 0; row < batch->starts[batch->sequences]; row++) {
        int64_t position = batch->positions[row], segment = batch->segments ? batch->segments[row] : 0;
        if (batch->tokens[row] < 0 || batch->tokens[row] >= e->vocabulary) return 1;
        if (e->segments && (segment < 0 || segment >= e->segment_count)) return 1;
        if (e->positions && (position < -e->offset || position >= e->position_count - e->offset)) return 2;
        if (batch->angles && (position < 0 || position >= batch->angles)) return 2;
    }
    struct whole_batch whole = {stack, embedding, batch, cuts, chunks};
    run_together(run_batch, &whole, batch->threads);
    return 0;
}

struct single_product {
    const struct matrix *matrix;
    const float *x;
    float *out;
    int64_t rows;
    char *memory;
};

static void run_product(const struct member *me, const void *single)
{
    const struct single_product *p = single;
    struct given memory = given_at(p->memory, p->rows);
    struct given x = give(p->x, p->rows, p->matrix->depth, p->matrix, &memory, me);
    product(p->matrix, &x, p->rows, p->out, 0, 0, 0, me);
}

int64_t weft_given_bytes(int64_t rows, int64_t depth) { return given_bytes(rows, depth); }

/* out (rows, width) = x W + b. `memory`: weft_given_bytes. */
void weft_product(const struct matrix *matrix, const float *x, float *out, int64_t rows, char *memory, int threads)
{
    struct single_product single = {matrix, x, out, rows, memory};
    run_together(run_product, &single, threads);
}

/* Whether this processor multiplies bfloat16. */
int weft_has_bfloat(void) { return HAS_BFLOAT; }

/* A number that depends on SAMPLES words (32 bits) of each of `count` tensors, or on all words of a smaller one. Steps of the
   golden ratio spread over the whole tensor and do not keep to a column of it. */
#define SAMPLES 16
uint64_t weft_sample(const int8_word *const *places, const int64_t *words, int64_t count)
{
    uint64_t found = 0;
    for (int64_t i = 0; i < count; i++)
        for (int64_t k = 0; k < (words[i] < SAMPLES ? words[i] : SAMPLES); k++) {
            uint64_t at = words[i] <= SAMPLES ? (uint64_t)k : (uint32_t)(k * 0x9e3779b9u) * (uint64_t)words[i] >> 32;
            found = (found ^ (uint32_t)places[i][at]) * 0x9e3779b97f4a7c15u;
            found ^= found >> 32;
        }
    return found;
}
