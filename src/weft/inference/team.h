/* Threads that run a step together.

   A step has about ten short loops per layer, with a few milliseconds of work in all, and the next step follows at once.
   OpenMP's threads are told to sleep early (see threads.py), and waking one takes longer than a loop. These spin for a
   moment, then yield their core in case that somebody else needs it, and sleep when nothing has come for a while.

   A function runs on every thread of a team, as `member` number `rank` of `size`. Members share loops (`SHARED`, `TAKEN`) and
   meet at their ends. If the threads are busy with another caller's step, a caller runs alone; the result is the same. */

#pragma once

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <time.h>

#define SPINS 2000
#define AWAKE_NANOSECONDS 3000000 /* without work, before a thread sleeps */
#define MOST_THREADS 256

struct team {
    int32_t arrived, phase;
    int64_t next; /* of a loop whose parts are taken one by one */
};

struct member {
    struct team *team;
    int rank, size;
};

typedef void task(const struct member *me, const void *given);

/* A loop over `count` items, divided evenly, or one by one. Members must `meet` after it. */
#define SHARED(i, count) \
    for (int64_t i = (count) * me->rank / me->size, i##_end = (count) * (me->rank + 1) / me->size; i < i##_end; i++)
#define TAKEN(i, count) \
    for (int64_t i; (i = __atomic_fetch_add(&me->team->next, 1, __ATOMIC_RELAXED)) < (count);)

static inline void relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static inline void wait_a_moment(int64_t waited)
{
    if (waited < SPINS)
        relax();
    else
        sched_yield();
}

/* Returns when all members have called it. */
static void meet(const struct member *me)
{
    struct team *team = me->team;
    if (me->size == 1) {
        team->next = 0;
        return;
    }
    int32_t phase = __atomic_load_n(&team->phase, __ATOMIC_ACQUIRE);
    if (__atomic_add_fetch(&team->arrived, 1, __ATOMIC_ACQ_REL) == me->size) {
        __atomic_store_n(&team->arrived, 0, __ATOMIC_RELAXED);
        __atomic_store_n(&team->next, 0, __ATOMIC_RELAXED);
        __atomic_store_n(&team->phase, phase + 1, __ATOMIC_RELEASE);
        return;
    }
    for (int64_t waited = 0; __atomic_load_n(&team->phase, __ATOMIC_ACQUIRE) == phase; waited++) wait_a_moment(waited);
}

static struct {
    pthread_mutex_t owner, sleep; /* whose step it is; for `woken` */
    pthread_cond_t woken;
    int threads, sleeping, is_prepared;
    int32_t round;                /* counts the steps, in units of MOST_THREADS; the rest is the size of the team */
    int32_t since[MOST_THREADS];  /* the round in which a thread was made, which is not its own */
    struct team team;
    task *run;
    const void *given;
} pool = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER};

static int64_t nanoseconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000LL + now.tv_nsec;
}

/* Returns when `round` is no longer the one that this thread has seen. */
static void await_round(int32_t seen)
{
    int64_t since = 0;
    for (int64_t waited = 0; __atomic_load_n(&pool.round, __ATOMIC_ACQUIRE) == seen; waited++) {
        wait_a_moment(waited);
        if (waited < SPINS || waited % 64) continue;
        if (!since) since = nanoseconds();
        if (nanoseconds() - since < AWAKE_NANOSECONDS) continue;
        pthread_mutex_lock(&pool.sleep);
        pool.sleeping++;
        while (__atomic_load_n(&pool.round, __ATOMIC_ACQUIRE) == seen) pthread_cond_wait(&pool.woken, &pool.sleep);
        pool.sleeping--;
        pthread_mutex_unlock(&pool.sleep);
    }
}

static void *work(void *rank)
{
    struct member me = {&pool.team, (int)(intptr_t)rank, 0};
    for (int32_t seen = pool.since[me.rank];;) {
        await_round(seen);
        seen = __atomic_load_n(&pool.round, __ATOMIC_ACQUIRE);
        me.size = seen % MOST_THREADS;
        if (me.rank >= me.size) continue;
        pool.run(&me, pool.given);
        meet(&me);
    }
    return 0;
}

/* A forked process has none of the threads. */
static void forget_threads(void)
{
    pthread_mutex_init(&pool.owner, 0);
    pthread_mutex_init(&pool.sleep, 0);
    pthread_cond_init(&pool.woken, 0);
    pool.threads = pool.sleeping = pool.round = 0;
    pool.team = (struct team){0};
}

/* Threads of the pool, `wanted` if they can be had, the caller included. */
static int ready_threads(int wanted)
{
    if (!pool.is_prepared) pool.is_prepared = 1, pthread_atfork(0, 0, forget_threads);
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before); /* signals are for the caller's threads */
    while (pool.threads + 1 < wanted && pool.threads + 2 < MOST_THREADS) {
        pthread_t thread;
        pool.since[pool.threads + 1] = pool.round;
        if (pthread_create(&thread, 0, work, (void *)(intptr_t)(pool.threads + 1))) break;
        pthread_detach(thread);
        pool.threads++;
    }
    pthread_sigmask(SIG_SETMASK, &before, 0);
    return pool.threads + 1 < wanted ? pool.threads + 1 : wanted;
}

/* Runs a task on `threads` threads, or fewer. */
static void run_together(task *run, const void *given, int threads)
{
    if (threads < 2 || pthread_mutex_trylock(&pool.owner)) {
        struct team alone = {0};
        struct member me = {&alone, 0, 1};
        run(&me, given);
        return;
    }
    int size = ready_threads(threads);
    struct member me = {&pool.team, 0, size};
    pool.run = run, pool.given = given;
    int32_t next = (int32_t)(((uint32_t)pool.round / MOST_THREADS + 1) * MOST_THREADS & 0x7fffffff) + size;
    __atomic_store_n(&pool.round, next, __ATOMIC_RELEASE);
    pthread_mutex_lock(&pool.sleep);
    if (pool.sleeping) pthread_cond_broadcast(&pool.woken);
    pthread_mutex_unlock(&pool.sleep);
    run(&me, given);
    meet(&me);
    pthread_mutex_unlock(&pool.owner);
}
