// The main loop of the fuzzer and its failure reports; see fuzz.h.

#include "fuzz.h"

#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/common_interface_defs.h>

// UBSan's findings abort and so reach on_signal.
const char *__ubsan_default_options(void);
const char *__ubsan_default_options(void) {
  return "abort_on_error=1:print_stacktrace=1";
}
#endif

enum { SECONDS_PER_INPUT = 20 }; // of CPU time: other processes may delay it

static struct {
  uint64_t seed;
  int64_t input; // the running input, or -1
  const char *bytes;
  int64_t n;
  const char *save;
} now = {.input = -1};

uint64_t random_next(Random *r) { // splitmix64
  uint64_t x = r->state += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

int64_t random_below(Random *r, int64_t n) {
  return n > 0 ? (int64_t)(random_next(r) % (uint64_t)n) : 0;
}

bool random_one_in(Random *r, int n) {
  return random_below(r, n) == 0;
}

int64_t random_number(Random *r) {
  static const int64_t ends[] = {-1,        0,         1,          2,       INT32_MAX, INT32_MIN,
                                 INT64_MAX, INT64_MIN, UINT32_MAX, 1 << 16, 127,       255};
  switch (random_below(r, 4)) {
  case 0: return ends[random_below(r, sizeof ends / sizeof ends[0])];
  case 1: return (int64_t)(1ULL << random_below(r, 64));
  case 2: return random_below(r, 1000);
  default: return random_below(r, 12) - 2;
  }
}

// -- Failure reports -------------------------------------------------------------------------

// Prints with async-signal-safe calls only.
static void say(const char *text) {
  if (write(STDERR_FILENO, text, strlen(text)) < 0) return;
}

static void say_number(uint64_t x) {
  char digits[24], *p = digits + sizeof digits - 1;
  *p = '\0';
  do
    *--p = (char)('0' + x % 10);
  while (x /= 10);
  say(p);
}

static void say_where(void) {
  if (now.input < 0) return;
  say("\nfuzz: that was input ");
  say_number((uint64_t)now.input);
  say("; again, and as a file:  fuzz_");
  say(fuzz_name);
  say(" --seed ");
  say_number(now.seed);
  say(" --only ");
  say_number((uint64_t)now.input);
  say(" --save FILE and the same files\n");
  now.input = -1;
}

static void on_signal(int signal_number) {
  say(signal_number == SIGPROF ? "fuzz: no end after 20 seconds of CPU time" : "fuzz: a signal");
  say_where();
  signal(signal_number, SIG_DFL);
  if (signal_number == SIGPROF) _exit(1);
  raise(signal_number);
}

void fuzz_fail(const char *what, const char *which) {
  say("fuzz: ");
  say(what);
  if (which) {
    say(": ");
    say(which);
  }
  say("\n");
  abort();
}

// -- The loop --------------------------------------------------------------------------------

static const char *read_file(Arena *a, const char *path, int64_t *n) {
  StrBuf b = {.arena = a};
  FILE *f = fopen(path, "rb");
  char piece[1 << 14];
  if (!f) {
    fprintf(stderr, "fuzz: cannot open '%s': %s\n", path, strerror(errno));
    exit(2);
  }
  strbuf_add(&b, "");
  for (size_t got; (got = fread(piece, 1, sizeof piece, f)) > 0;)
    strbuf_add_n(&b, piece, got);
  fclose(f);
  *n = (int64_t)b.n;
  return b.at ? b.at : "";
}

static void save(const char *path) {
  FILE *f = fopen(path, "wb");
  if (!f || fwrite(now.bytes, 1, (size_t)now.n, f) != (size_t)now.n || fclose(f)) {
    fprintf(stderr, "fuzz: cannot write '%s'\n", path);
    exit(2);
  }
}

// Sends SIGPROF after so many seconds of CPU time; 0: does not.
static void limit_seconds(int seconds) {
  struct itimerval t = {.it_value.tv_sec = seconds};
  if (setitimer(ITIMER_PROF, &t, NULL) != 0) abort();
}

static bool run_input(const Seeds *seeds, int64_t input) {
  Random r = {now.seed + (uint64_t)input * 0x632be59bd9b4e019};
  Arena *a = arena_new();
  StrBuf out = {.arena = a};
  strbuf_add(&out, "");
  fuzz_mutate(seeds, &seeds->at[random_below(&r, seeds->n)], &r, &out);
  now.input = input;
  now.bytes = out.at ? out.at : "";
  now.n = (int64_t)out.n;
  if (now.save) save(now.save);
  // An exact-size copy, so that a sanitizer detects reads past the end.
  char *bytes = malloc(out.n ? out.n : 1);
  if (!bytes) abort();
  memcpy(bytes, now.bytes, out.n);
  limit_seconds(SECONDS_PER_INPUT);
  bool accepted = fuzz_one(bytes, now.n);
  limit_seconds(0);
  free(bytes);
  now.input = -1;
  arena_free(a);
  return accepted;
}

static double seconds_now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

int main(int argc, char **argv) {
  static const struct option options[] = {
      {"seed", required_argument, NULL, 's'},   {"seconds", required_argument, NULL, 't'},
      {"inputs", required_argument, NULL, 'n'}, {"only", required_argument, NULL, 'o'},
      {"save", required_argument, NULL, 'w'},   {0}};
  double limit = 0; // of seconds; 0: not given
  int64_t inputs = INT64_MAX, only = -1;
  now.seed = 1;
  for (int c; (c = getopt_long(argc, argv, "", options, NULL)) != -1;) {
    switch (c) {
    case 's': now.seed = strtoull(optarg, NULL, 10); break;
    case 't': limit = strtod(optarg, NULL); break;
    case 'n': inputs = strtoll(optarg, NULL, 10); break;
    case 'o': only = strtoll(optarg, NULL, 10); break;
    case 'w': now.save = optarg; break;
    default: return 2;
    }
  }
  if (optind == argc) {
    fprintf(stderr, "usage: fuzz_%s [--seed S] [--seconds T] [--inputs N] [--only I] FILE...\n",
            fuzz_name);
    return 2;
  }
  signal(SIGABRT, on_signal);
  signal(SIGPROF, on_signal);
#ifdef __SANITIZE_ADDRESS__
  __sanitizer_set_death_callback(say_where);
#else
  signal(SIGSEGV, on_signal);
#endif

  Arena *a = arena_new();
  Seeds seeds = {.n = argc - optind};
  Seed *at = arena_array(a, Seed, seeds.n);
  for (int i = 0; i < seeds.n; i++) {
    at[i].path = argv[optind + i];
    at[i].at = read_file(a, at[i].path, &at[i].n);
  }
  seeds.at = at;
  fuzz_begin(&seeds, a);
  if (only >= 0) {
    bool accepted = run_input(&seeds, only);
    printf("fuzz_%s: input %lld was %s\n", fuzz_name, (long long)only,
           accepted ? "accepted" : "refused");
    arena_free(a);
    return 0;
  }
  // A number of inputs has no limit in seconds of its own.
  if (limit == 0) limit = inputs == INT64_MAX ? 5 : HUGE_VAL;
  // The unchanged files run first: files that crash or are all refused are useless as seeds.
  int64_t valid = 0, done = 0, accepted = 0;
  for (int i = 0; i < seeds.n; i++)
    valid += fuzz_one(at[i].at, at[i].n);
  for (double end = seconds_now() + limit; done < inputs && seconds_now() < end; done++)
    accepted += run_input(&seeds, done);
  printf("fuzz_%s: %d files (%lld valid), %lld inputs, %lld accepted\n", fuzz_name, seeds.n,
         (long long)valid, (long long)done, (long long)accepted);
  arena_free(a);
  return valid == 0 || accepted == 0 || accepted == done;
}
