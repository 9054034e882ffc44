/* A pool of threads that works on one job at a time. A caller that finds it busy does its job alone: then as many
 * threads are copying already as there are callers. */
#define _GNU_SOURCE
#include "hostcpu.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>

#if defined(__x86_64__)
#include <emmintrin.h>
#define PUBLISH_STREAMED_STORES() _mm_sfence()
#else
#define PUBLISH_STREAMED_STORES() ((void)0)
#endif

#define MOST_THREADS 256

struct job {
    hostcpu_work work;
    void *context;
    int64_t units;
    _Atomic int64_t next;
    int helpers; /* further threads that may join; guarded by pool.lock */
};

static struct {
    pthread_mutex_t owner; /* held by the caller whose job it is */
    pthread_mutex_t lock;  /* guards all that follows */
    pthread_cond_t posted;
    pthread_cond_t drained;
    struct job *job;
    uint64_t posts;
    int active;
    int workers;
    int threads;
    int has_cpus;
    cpu_set_t cpus;
} pool = {
    .owner = PTHREAD_MUTEX_INITIALIZER,
    .lock = PTHREAD_MUTEX_INITIALIZER,
    .posted = PTHREAD_COND_INITIALIZER,
    .drained = PTHREAD_COND_INITIALIZER,
    .threads = 1,
};

static pthread_once_t fork_guard = PTHREAD_ONCE_INIT;

/* A forked process has none of the threads, and locks in the state in which they happened to be. */
static void forget_threads(void)
{
    pthread_mutex_init(&pool.owner, NULL);
    pthread_mutex_init(&pool.lock, NULL);
    pthread_cond_init(&pool.posted, NULL);
    pthread_cond_init(&pool.drained, NULL);
    pool.job = NULL;
    pool.active = 0;
    pool.workers = 0;
}

static void watch_forks(void)
{
    pthread_atfork(NULL, NULL, forget_threads);
}

static void take_units(struct job *job)
{
    for (;;) {
        int64_t unit = atomic_fetch_add_explicit(&job->next, 1, memory_order_relaxed);
        if (unit >= job->units)
            break;
        job->work(job->context, unit);
    }
    PUBLISH_STREAMED_STORES();
}

static void *worker(void *unused)
{
    uint64_t seen = 0;
    (void)unused;
    pthread_mutex_lock(&pool.lock);
    for (;;) {
        while (pool.job == NULL || pool.posts == seen || pool.job->helpers == 0)
            pthread_cond_wait(&pool.posted, &pool.lock);
        struct job *job = pool.job;
        seen = pool.posts;
        job->helpers--;
        pool.active++;
        pthread_mutex_unlock(&pool.lock);
        take_units(job);
        pthread_mutex_lock(&pool.lock);
        if (--pool.active == 0)
            pthread_cond_signal(&pool.drained);
    }
    return NULL;
}

/* With pool.lock held. Fewer threads than wanted are no error: the caller's is always there. */
static void start_workers(int wanted)
{
    sigset_t all, before;
    pthread_attr_t attributes;

    if (pool.workers >= wanted || pthread_attr_init(&attributes) != 0)
        return;
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_attr_setstacksize(&attributes, 256 * 1024);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before); /* signals are for the program's own threads */
    while (pool.workers < wanted) {
        pthread_t thread;
        if (pthread_create(&thread, &attributes, worker, NULL) != 0)
            break;
        /* the creator may be bound to one core, as inference threads are: its copies must not share that core */
        if (pool.has_cpus)
            pthread_setaffinity_np(thread, sizeof pool.cpus, &pool.cpus);
        pool.workers++;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
}

void hostcpu_configure(int64_t threads, const int64_t *cpus, int64_t cpu_count)
{
    pthread_mutex_lock(&pool.lock);
    pool.threads = threads < 1 ? 1 : threads > MOST_THREADS ? MOST_THREADS : (int)threads;
    CPU_ZERO(&pool.cpus);
    pool.has_cpus = 0;
    for (int64_t i = 0; i < cpu_count; i++) {
        if (cpus[i] >= 0 && cpus[i] < CPU_SETSIZE) {
            CPU_SET((int)cpus[i], &pool.cpus);
            pool.has_cpus = 1;
        }
    }
    pthread_mutex_unlock(&pool.lock);
}

void hostcpu_run(hostcpu_work work, void *context, int64_t units)
{
    struct job job = {.work = work, .context = context, .units = units};

    pthread_once(&fork_guard, watch_forks);
    if (units < 2 || pthread_mutex_trylock(&pool.owner) != 0) {
        take_units(&job);
        return;
    }
    pthread_mutex_lock(&pool.lock);
    int helpers = pool.threads - 1;
    if (helpers > units - 1)
        helpers = (int)(units - 1);
    start_workers(helpers);
    job.helpers = helpers;
    pool.job = &job;
    pool.posts++;
    if (helpers > 0)
        pthread_cond_broadcast(&pool.posted);
    pthread_mutex_unlock(&pool.lock);

    take_units(&job);

    pthread_mutex_lock(&pool.lock);
    pool.job = NULL; /* who wakes up late finds nothing to join */
    while (pool.active > 0)
        pthread_cond_wait(&pool.drained, &pool.lock);
    pthread_mutex_unlock(&pool.lock);
    pthread_mutex_unlock(&pool.owner);
}
