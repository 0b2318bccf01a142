// The command line: rows of flags.def, read by getopt_long.

#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "nearest.h"
#include "runtime.h"

typedef enum Kind {
  KIND_group,
  KIND_files,
  KIND_names,
  KIND_count,
  KIND_whole,
  KIND_seed,
  KIND_number,
  KIND_path,
  KIND_choice,
  KIND_none
} Kind;

typedef enum Agree { AGREE_same, AGREE_given, AGREE_own } Agree;
typedef enum Use { USE_train, USE_any } Use;

typedef struct Row {
  Kind kind;
  const char *flag, *value, *help;
  size_t field; // offset in Flags
  Agree agree;
  Use use;
} Row;

static const Row rows[] = {
#define GROUP(name) {.kind = KIND_group, .flag = name},
#define FLAG(field, kind, flag, value, agree, use, help)                                           \
  {KIND_##kind, flag, value, help, offsetof(Flags, field), AGREE_##agree, USE_##use},
#include "flags.def"
};
enum { N_ROWS = sizeof rows / sizeof *rows, HELP_COLUMN = 32 };

// Ends the process after text on standard output, which may be full.
NNRT_NORETURN static void finish_printing(const char *program) {
  if (!fflush(stdout) && !ferror(stdout)) exit(0);
  int code = errno;
  nnrt_put_shown(stderr, program);
  fprintf(stderr, ": error: cannot write to standard output: %s\n", strerror(code));
  exit(1);
}

static void help(const char *program, const NnrtProgram *p) {
  printf("usage: ");
  nnrt_put_shown(stdout, program);
  for (int i = 0; i < p->train.n_tensors; i++) {
    if (p->train.tensors[i].role != NNRT_input) continue;
    printf(" --input ");
    nnrt_put_shown(stdout, p->train.tensors[i].name);
    printf("=FILE.npy");
  }
  printf(" [--steps N] …\n\nTrains ");
  nnrt_put_shown(stdout, p->model);
  printf(" on %d rank%s (%s), %lld rows a step.\n", p->ranks, p->ranks == 1 ? "" : "s", p->target,
         (long long)p->batch);
  for (int i = 0; i < N_ROWS; i++) {
    const Row *row = &rows[i];
    // A heading.
    if (row->kind == KIND_group) {
      printf("\n%s:\n", row->flag);
      continue;
    }
    if (!*row->help) continue;
    int n = printf("  --%s%s%s", row->flag, *row->value ? " " : "", row->value);
    printf("%*s", n < HELP_COLUMN ? HELP_COLUMN - n : 2, "");
    // Further lines of the text begin in the same column.
    for (const char *c = row->help; *c; c++) {
      putchar(*c);
      if (*c == '\n') printf("%*s", HELP_COLUMN, "");
    }
    putchar('\n');
  }
  printf(
      "\nStarted by mpirun, torchrun or srun this process is one rank, with --node it starts "
      "some;\n"
      "otherwise it is all of them.\n"
      "SIGTERM and SIGINT finish the step, write checkpoint, --save and --export, and end with 0;\n"
      "a second one, two seconds later or more, ends at once.  SIGUSR1 and SIGHUP write a "
      "checkpoint;\n"
      "SIGQUIT prints the stacks of all ranks and ends.  Exit status: 0 done or stopped, 1 "
      "failed,\n"
      "2 wrong usage.\n");
}

static _Noreturn void usage(const char *problem, const char *flag, const char *value) {
  nnrt_ranks_refuse(2, "--%s%s%s: %s\nhint: see --help", flag, value ? " " : "", value ? value : "",
                    problem);
}

static Flag *flag_of(Flags *f, const Row *row) {
  return (Flag *)(void *)((char *)f + row->field);
}

// Returns the number of a name among names with '|' between them; -1: it is none of them.
static int64_t choice_of(const char *names, const char *name) {
  size_t n = strlen(name);
  for (int64_t i = 0;; i++) {
    size_t length = strcspn(names, "|");
    if (length == n && memcmp(names, name, n) == 0) return i;
    if (!names[length]) return -1;
    names += length + 1;
  }
}

static void set_flag(Flag *f, const Row *row, const char *value) {
  char *end = NULL;
  bool list = row->kind == KIND_files || row->kind == KIND_names;
  // Only lists may be given several times.
  if (f->given && !list && row->kind != KIND_none) usage("is given twice", row->flag, value);
  f->given = true;
  f->s = value;
  errno = 0;
  switch (row->kind) {
  case KIND_group:
  case KIND_none: return;
  case KIND_path:
    if (!*value) usage("a name was expected", row->flag, NULL);
    return;
  case KIND_files:
    if (!strchr(value, '=')) usage("NAME=FILE was expected", row->flag, value);
    // fall through
  case KIND_names:
    f->list = realloc(f->list, (size_t)(f->n + 1) * sizeof *f->list);
    if (!f->list) nnrt_must_alloc((size_t)-1);
    f->list[f->n++] = value;
    return;
  case KIND_count:
  case KIND_whole:
  case KIND_seed:
    f->i = strtoll(value, &end, 10);
    if (end == value || *end || errno) usage("a whole number was expected", row->flag, value);
    if (row->kind == KIND_count && f->i < 1)
      usage("a number from 1 was expected", row->flag, value);
    if (row->kind == KIND_whole && f->i < 0)
      usage("a number from 0 was expected", row->flag, value);
    return;
  case KIND_choice:
    f->i = choice_of(row->value, value);
    if (f->i < 0) usage(nnrt_must_format("one of %s was expected", row->value), row->flag, value);
    return;
  case KIND_number:
    f->f = strtod(value, &end);
    if (end == value || *end || !isfinite(f->f) || f->f < 0)
      usage("a number from 0 was expected", row->flag, value);
    return;
  }
}

static _Noreturn void refuse_unknown(const char *word) {
  const char *name = word + strspn(word, "-");
  NnrtNearest best = {0};
  for (int i = 0; i < N_ROWS; i++)
    if (rows[i].kind != KIND_group && *rows[i].help)
      nnrt_nearest(&best, name, strcspn(name, "="), rows[i].flag);
  // The value is not part of the name.
  int n = (int)strcspn(word, "=");
  if (!best.name) nnrt_ranks_refuse(2, "there is no option '%.*s'\nhint: see --help", n, word);
  nnrt_ranks_refuse(2, "there is no option '%.*s'\nhint: did you mean --%s?  see --help", n, word,
                    best.name);
}

void nnrt_flags_parse(Flags *f, int argc, char **argv, const NnrtProgram *p) {
  struct option options[N_ROWS + 1] = {0};
  int at[N_ROWS], n = 0;
  // The options of getopt are the rows that are not headings; `at` maps them back.
  for (int i = 0; i < N_ROWS; i++) {
    if (rows[i].kind == KIND_group) continue;
    options[n] = (struct option){
        rows[i].flag, rows[i].kind == KIND_none ? no_argument : required_argument, NULL, 0};
    at[n++] = i;
  }
  *f = (Flags){0};
  // The messages are our own: only rank 0 prints them.
  opterr = 0;
  for (int which = 0, c; (c = getopt_long(argc, argv, ":h", options, &which)) != -1;) {
    if (c == 'h') {
      f->help.given = true;
    } else if (c == ':') {
      nnrt_ranks_refuse(2, "'%s' needs a value\nhint: see --help", argv[optind - 1]);
    } else if (c == '?') {
      refuse_unknown(argv[optind - 1]);
    } else {
      const Row *row = &rows[at[which]];
      set_flag(flag_of(f, row), row, optarg);
    }
  }
  if (optind < argc) nnrt_ranks_refuse(2, "unexpected '%s'\nhint: see --help", argv[optind]);
  // These print and exit before anything is opened.
  if (f->help.given) {
    help(argv[0], p);
    finish_printing(argv[0]);
  }
  if (f->version.given) {
    printf("nnaot %s: ", p->version);
    nnrt_put_shown(stdout, p->model);
    printf(" for %s\n", p->target);
    finish_printing(argv[0]);
  }
  if (f->describe.given) {
    nnrt_describe(p, f, stdout);
    finish_printing(argv[0]);
  }
  if (f->eval_only.given) {
    // An evaluation would ignore the flags of training.
    for (int i = 0; i < N_ROWS; i++)
      if (rows[i].kind != KIND_group && rows[i].use == USE_train && flag_of(f, &rows[i])->given)
        nnrt_ranks_refuse(
            2, "--%s has no effect with --eval-only, which trains nothing\nhint: see --help",
            rows[i].flag);
  }
}

double nnrt_stall_timeout(const Flags *f) {
  const Flag *seconds = &f->stall_timeout;
  if (!seconds->given) return 600;
  // 0 waits for ever.
  return seconds->f > 0 ? seconds->f : INFINITY;
}

double nnrt_connect_timeout(const Flags *f) {
  return f->connect_timeout.given ? f->connect_timeout.f : 300;
}

// Adds a number as its shortest exact text.
static void add_number(Terms *t, const char *name, double x) {
  char text[32];
  int digits = 6;
  // With 17 digits every double is exact.
  do
    snprintf(text, sizeof text, "%.*g", digits, x);
  while (strtod(text, NULL) != x && ++digits <= 17);
  nnrt_terms_add(t, name, "%s", text);
}

// Adds the names in the order in which they are given, which is that of their collectives.
static void add_names(Terms *t, const char *name, const Flag *flag) {
  char *all = NULL;
  for (int i = 0; i < flag->n; i++)
    all = nnrt_must_append(all, "%s%s", i ? ", " : "", flag->list[i]);
  nnrt_terms_add(t, name, "%s", all);
  free(all);
}

void nnrt_flags_terms(const Flags *f, Terms *t) {
  for (int i = 0; i < N_ROWS; i++) {
    const Row *row = &rows[i];
    if (row->kind == KIND_group || row->agree == AGREE_own) continue;
    char *name = nnrt_must_format("--%s", row->flag);
    // The values of some flags must be equal; of the others only their presence.
    const Flag *flag = (const Flag *)(const void *)((const char *)f + row->field);
    bool value = flag->given && row->agree == AGREE_same;
    if (!flag->given)
      nnrt_terms_add(t, name, "not given");
    else if (value && row->kind == KIND_names)
      add_names(t, name, flag);
    else if (row->kind == KIND_files && flag->n > 1)
      nnrt_terms_add(t, name, "given %d times", flag->n);
    else if (value &&
             (row->kind == KIND_count || row->kind == KIND_whole || row->kind == KIND_seed))
      nnrt_terms_add(t, name, "%lld", (long long)flag->i);
    else if (value && row->kind == KIND_number)
      add_number(t, name, flag->f);
    else if (value && row->kind == KIND_choice)
      nnrt_terms_add(t, name, "%s", flag->s);
    else
      nnrt_terms_add(t, name, "given");
    free(name);
  }
}
