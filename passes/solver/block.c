// Bucket elimination of a block (block.h).  Dechter, Bucket elimination: a unifying framework for
// reasoning.
//
// Eliminating a variable v makes a table over its scope, the neighbours that v has at that time:
//
//     F_v(s1, …, sk) = min over v of  cost(v) + pairs(v, si) + F_w(…, v) of earlier w
//
// A scope is in reverse order of elimination.  So the variable whose step reads a table is the
// table's innermost dimension: the sum adds contiguous rows, one number for each label of v.  The
// sum of all inputs that depend on s1 … sd only is computed once for all of s(d+1) … sk.  Labels
// are recomputed backwards, without being stored.

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "solver/block.h"

enum { MAX_SCOPE = 24 };

typedef struct Input {
  const double *at;
  int64_t stride[MAX_SCOPE]; // per variable of the scope, 0 if independent of it
  int depth;                 // position of the innermost one that it depends on, from 1; 0: none
} Input;

typedef struct Step {
  int var; // local number
  int n_scope;
  int scope[MAX_SCOPE]; // local numbers
  double *table;
  double *base;                // cost of each label, with the tables to fixed variables
  double *paid;                // the same with memory costs, after solving
  int first_child, next_child; // earlier steps whose table this one reads
  Input *input;                // summands, by depth
  int n_inputs;
} Step;

struct Block {
  const Core *core;
  int most_vars, n_words;
  int64_t entries;
  int n;          // requested variables
  int *var;       // per local number
  int *local;     // per variable of the core, or -1
  uint64_t *near; // n x n_words bits: neighbours not yet eliminated
  double *weight; // per variable: entries that its elimination would compute
  char *state;    // 0: open, 1: eliminated, 2: fixed
  Step *step;     // in the order of elimination
  int n_steps;
  int *step_of; // local number to step, or -1
  int *free_var;
  double *tables, *bases, *paid, *sums; // sums: MAX_SCOPE + 1 rows of labels
  double *pay;
  int64_t used;      // of tables
  double work;       // numbers that fill them
  int64_t base_used; // of bases
  Input *input;      // of all steps, n_inputs so far
  int n_inputs;
};

Block *block_new(Arena *a, const Core *c, int most_vars, int64_t entries) {
  Block *b = arena_one(a, Block);
  int n = most_vars < c->n_vars ? most_vars : c->n_vars;
  *b = (Block){.core = c, .most_vars = n, .n_words = (n + 63) / 64, .entries = entries};
  b->var = arena_array(a, int, n);
  b->local = arena_array(a, int, c->n_vars);
  for (int i = 0; i < c->n_vars; i++)
    b->local[i] = -1;
  b->near = arena_array(a, uint64_t, (int64_t)n * b->n_words);
  b->weight = arena_array(a, double, n);
  b->state = arena_array(a, char, n);
  b->step = arena_array(a, Step, n);
  b->step_of = arena_array(a, int, n);
  b->free_var = arena_array(a, int, n);
  b->tables = arena_array(a, double, entries);
  b->bases = arena_array(a, double, c->n_labels);
  b->sums = arena_array(a, double, (int64_t)(MAX_SCOPE + 1) * c->most_labels);
  b->pay = arena_array(a, double, c->most_labels);
  b->paid = arena_array(a, double, c->n_labels);
  // An input per table of two free variables, and one per table of an elimination.
  int n_links = 0;
  for (int i = 0; i < c->n_vars; i++)
    n_links += c->var[i].n_links;
  b->input = arena_array(a, Input, n + n_links / 2);
  return b;
}

// -- The plan --------------------------------------------------------------------------------

static uint64_t *near_of(const Block *b, int x) {
  return b->near + (int64_t)x * b->n_words;
}

#define for_each_near(b, x, y)                                                                     \
  for (int word_ = 0; word_ < (b)->n_words; word_++)                                               \
    for (uint64_t bits_ = near_of(b, x)[word_];                                                    \
         bits_ && ((y) = word_ * 64 + __builtin_ctzll(bits_), 1); bits_ &= bits_ - 1)

static int labels(const Block *b, int x) {
  return b->core->var[b->var[x]].n;
}

static void weigh(Block *b, int x) {
  double weight = labels(b, x);
  int y, n = 0;
  for_each_near(b, x, y) {
    weight *= labels(b, y);
    n++;
  }
  b->weight[x] = n > MAX_SCOPE ? INFINITY : weight;
}

static void take_out(Block *b, int x) {
  int y;
  for_each_near(b, x, y) near_of(b, y)[x / 64] &= ~(UINT64_C(1) << x % 64);
}

static void eliminate(Block *b, int x) {
  int y;
  b->state[x] = 1;
  Step *s = &b->step[b->n_steps];
  *s = (Step){.var = x, .first_child = -1, .next_child = -1};
  b->step_of[x] = b->n_steps++;
  // The table over its neighbours makes these neighbours of each other.
  take_out(b, x);
  for_each_near(b, x, y) {
    s->scope[s->n_scope++] = y; // unordered so far
    for (int w = 0; w < b->n_words; w++)
      near_of(b, y)[w] |= near_of(b, x)[w];
    near_of(b, y)[y / 64] &= ~(UINT64_C(1) << y % 64);
  }
  for_each_near(b, x, y) weigh(b, y);
}

// An open variable that makes tables large, with some randomness.
static int heaviest(const Block *b, Dice *r) {
  int best = -1;
  double most = 0;
  for (int x = 0; x < b->n; x++) {
    if (b->state[x]) continue;
    double weight = (isinf(b->weight[x]) ? 300 : log(b->weight[x] + 1)) * (0.3 + dice_unit(r));
    if (best < 0 || weight > most) best = x, most = weight;
  }
  return best;
}

// Sorts scopes in reverse order of elimination, and assigns each table to the step that reads it.
static void order_scopes(Block *b) {
  for (int k = 0; k < b->n_steps; k++) {
    Step *s = &b->step[k];
    // A variable may have entered the scope before it was fixed.
    int n = 0;
    for (int i = 0; i < s->n_scope; i++)
      if (b->state[s->scope[i]] == 1) s->scope[n++] = s->scope[i];
    s->n_scope = n;
    // Insertion sort: a scope has at most MAX_SCOPE variables.
    for (int i = 1; i < s->n_scope; i++) {
      int x = s->scope[i], j = i;
      for (; j && b->step_of[s->scope[j - 1]] < b->step_of[x]; j--)
        s->scope[j] = s->scope[j - 1];
      s->scope[j] = x;
    }
    // The innermost variable is eliminated next of all in the scope: its step reads the table.
    if (!s->n_scope) continue;
    Step *parent = &b->step[b->step_of[s->scope[s->n_scope - 1]]];
    s->next_child = parent->first_child;
    parent->first_child = k;
  }
}

// Sets the cost of each label of the free variables, with the tables to fixed ones.
static void set_bases(Block *b, const int *label) {
  b->base_used = 0;
  for (int k = 0; k < b->n_steps; k++) {
    Step *s = &b->step[k];
    const CoreVar *v = &b->core->var[b->var[s->var]];
    s->base = b->bases + b->base_used;
    s->paid = b->paid + b->base_used;
    b->base_used += v->n;
    memcpy(s->base, v->cost, (size_t)v->n * sizeof *s->base);
    // The row of the fixed end's label is contiguous.
    for (int i = 0; i < v->n_links; i++) {
      int y = b->local[v->link[i].other];
      if (y >= 0 && b->state[y] == 1) continue;
      const double *row = v->link[i].at + (int64_t)label[v->link[i].other] * v->n;
      for (int j = 0; j < v->n; j++)
        s->base[j] += row[j];
    }
  }
}

static int depth_in(const Step *s, int x) {
  for (int i = 0; i < s->n_scope; i++)
    if (s->scope[i] == x) return i + 1;
  return 0;
}

static Input *new_input(Block *b, Step *s, const double *at) {
  Input *in = &b->input[b->n_inputs++];
  s->n_inputs++;
  memset(in, 0, sizeof *in);
  in->at = at;
  return in;
}

static int input_order(const void *x, const void *y) {
  return ((const Input *)x)->depth - ((const Input *)y)->depth;
}

// Lists the summands of each step, by depth.
static void set_inputs(Block *b) {
  b->n_inputs = 0;
  for (int k = 0; k < b->n_steps; k++) {
    Step *s = &b->step[k];
    s->input = b->input + b->n_inputs;
    // A table of two free variables is read at its end that is eliminated first.
    const CoreVar *v = &b->core->var[b->var[s->var]];
    for (int i = 0; i < v->n_links; i++) {
      int other = b->local[v->link[i].other];
      int depth = other >= 0 ? depth_in(s, other) : 0;
      if (!depth) continue;
      Input *in = new_input(b, s, v->link[i].at);
      in->depth = depth;
      in->stride[depth - 1] = v->n;
    }
    // Tables of earlier steps that no other step reads; `s->var` is their innermost dimension.
    for (int from = s->first_child; from >= 0; from = b->step[from].next_child) {
      const Step *child = &b->step[from];
      Input *in = new_input(b, s, child->table);
      int64_t stride = labels(b, s->var);
      for (int i = child->n_scope - 2; i >= 0; i--) {
        int depth = depth_in(s, child->scope[i]);
        in->stride[depth - 1] = stride;
        if (depth > in->depth) in->depth = depth;
        stride *= labels(b, child->scope[i]);
      }
    }
    // `fill` adds inputs depth by depth.
    qsort(s->input, (size_t)s->n_inputs, sizeof *s->input, input_order);
  }
}

int block_plan(Block *b, const int *var, int n, const int *label, int64_t table, Dice *r) {
  for (int x = 0; x < b->n; x++)
    b->local[b->var[x]] = -1;
  // Neighbours are only those within the block: variables outside keep their labels.
  b->n = n;
  memset(b->near, 0, (size_t)n * (size_t)b->n_words * sizeof *b->near);
  for (int x = 0; x < n; x++) {
    b->var[x] = var[x];
    b->local[var[x]] = x;
    b->state[x] = 0;
    b->step_of[x] = -1;
  }
  for (int x = 0; x < n; x++) {
    const CoreVar *v = &b->core->var[var[x]];
    for (int k = 0; k < v->n_links; k++) {
      int y = b->local[v->link[k].other];
      if (y >= 0) near_of(b, x)[y / 64] |= UINT64_C(1) << y % 64;
    }
  }
  for (int x = 0; x < n; x++)
    weigh(b, x);
  b->n_steps = 0;
  b->used = 0;
  b->work = 0;
  // Eliminate the open variable with the smallest table.
  for (int left = n; left; left--) {
    int x = -1;
    for (int i = 0; i < n; i++)
      if (!b->state[i] && (x < 0 || b->weight[i] < b->weight[x])) x = i;
    double size = b->weight[x] / labels(b, x); // of the resulting table
    if (b->weight[x] > (double)table || size > (double)(b->entries - b->used)) {
      // Even the smallest table is too large: another variable keeps its label.
      int fixed = heaviest(b, r), y;
      b->state[fixed] = 2;
      take_out(b, fixed);
      for_each_near(b, fixed, y) weigh(b, y);
      continue;
    }
    b->free_var[b->n_steps] = var[x];
    b->step[b->n_steps].table = NULL;
    eliminate(b, x);
    b->step[b->n_steps - 1].table = b->tables + b->used;
    b->used += (int64_t)size;
    b->work += b->weight[x];
  }
  order_scopes(b);
  set_bases(b, label);
  set_inputs(b);
  return b->n_steps;
}

double block_work(const Block *b) {
  return b->work;
}

int block_free(const Block *b, const int **out_var) {
  *out_var = b->free_var;
  return b->n_steps;
}

// -- Solving ---------------------------------------------------------------------------------

static double least_of(const double *at, int n) {
  // Two independent minima, which the processor computes at the same time.
  double x = INFINITY, y = INFINITY;
  int i = 0;
  for (; i + 1 < n; i += 2) {
    x = at[i] < x ? at[i] : x;
    y = at[i + 1] < y ? at[i + 1] : y;
  }
  if (i < n) x = at[i] < x ? at[i] : x;
  return x < y ? x : y;
}

static double least_of_sum(const double *at, const double *more, int n) {
  double x = INFINITY, y = INFINITY;
  int i = 0;
  for (; i + 1 < n; i += 2) {
    double one = at[i] + more[i], two = at[i + 1] + more[i + 1];
    x = one < x ? one : x;
    y = two < y ? two : y;
  }
  if (i < n) {
    double one = at[i] + more[i];
    x = one < x ? one : x;
  }
  return x < y ? x : y;
}

typedef struct Fill {
  Block *b;
  const Step *s;
  int n, n_inputs;          // labels
  int first[MAX_SCOPE + 2]; // inputs of each depth: [first[d], first[d + 1])
  double *out;
} Fill;

// Computes all table entries for fixed labels of the outer depths; `sum` is the cost of these, per
// label.
static void fill(Fill *f, int depth, const double *sum) {
  Input *input = f->s->input;
  Block *b = f->b;
  int last = f->s->n_scope, from = f->first[depth], to = f->first[depth + 1];
  double *mine = b->sums + (int64_t)depth * b->core->most_labels;
  int count = labels(b, f->s->scope[depth - 1]);
  // Three cases: one input at the last depth needs no row of sums; else add this depth's inputs,
  // and go deeper unless it is the last.
  for (int j = 0; j < count; j++) {
    if (depth == last && to - from == 1) {
      *f->out++ = least_of_sum(sum, input[from].at, f->n);
    } else {
      const double *here = sum;
      for (int k = from; k < to; k++) {
        const double *more = input[k].at;
        for (int i = 0; i < f->n; i++)
          mine[i] = here[i] + more[i];
        here = mine;
      }
      if (depth == last)
        *f->out++ = least_of(here, f->n);
      else
        fill(f, depth + 1, here);
    }
    // Advance the pointers of all inputs to the next label of this depth; rewind after the loop.
    for (int k = from; k < f->n_inputs; k++)
      input[k].at += input[k].stride[depth - 1];
  }
  for (int k = from; k < f->n_inputs; k++)
    input[k].at -= count * input[k].stride[depth - 1];
}

static void fill_step(Block *b, Step *s, const double *sum) {
  const CoreVar *v = &b->core->var[b->var[s->var]];
  Input *input = s->input;
  Fill f = {b, s, v->n, s->n_inputs, {0}, s->table};
  for (int d = 0, k = 0; d <= s->n_scope + 1; d++) {
    f.first[d] = k;
    while (k < f.n_inputs && input[k].depth == d)
      k++;
  }
  // Memory costs of labels change with the prices, bases do not.
  memcpy(s->paid, s->base, (size_t)v->n * sizeof *s->paid);
  if (sum) {
    core_pay(v, sum, b->pay);
    for (int i = 0; i < v->n; i++)
      s->paid[i] += b->pay[i];
  }
  // Inputs of depth 0 are constant over the whole table.
  double *own = b->sums;
  memcpy(own, s->paid, (size_t)v->n * sizeof *own);
  for (int k = 0; k < f.first[1]; k++)
    for (int i = 0; i < v->n; i++)
      own[i] += input[k].at[i];
  if (s->n_scope)
    fill(&f, 1, own);
  else
    s->table[0] = least_of(own, v->n);
}

double block_solve(Block *b, const double *sum, int *label) {
  // Forwards: a table without scope is one number, the least cost of its part of the block.
  double cost = 0;
  for (int k = 0; k < b->n_steps; k++) {
    fill_step(b, &b->step[k], sum);
    if (!b->step[k].n_scope) cost += b->step[k].table[0];
  }
  // Backwards: the labels of a step's scope are known, and its own best label follows.
  for (int k = b->n_steps - 1; k >= 0; k--) {
    const Step *s = &b->step[k];
    const CoreVar *v = &b->core->var[b->var[s->var]];
    double *own = b->sums;
    memcpy(own, s->paid, (size_t)v->n * sizeof *own);
    for (int i = 0; i < s->n_inputs; i++) {
      const double *more = s->input[i].at;
      for (int d = 0; d < s->n_scope; d++)
        more += s->input[i].stride[d] * label[b->var[s->scope[d]]];
      for (int j = 0; j < v->n; j++)
        own[j] += more[j];
    }
    int best = 0;
    for (int i = 1; i < v->n; i++)
      if (own[i] < own[best]) best = i;
    label[b->var[s->var]] = best;
  }
  return cost;
}

double block_cost(const Block *b, const int *label) {
  double cost = 0;
  for (int k = 0; k < b->n_steps; k++) {
    const Step *s = &b->step[k];
    const CoreVar *v = &b->core->var[b->var[s->var]];
    cost += s->base[label[b->var[s->var]]];
    // Each table of two free variables counts at its end that is eliminated first.
    for (int i = 0; i < v->n_links; i++) {
      int y = b->local[v->link[i].other];
      if (y >= 0 && b->state[y] == 1 && b->step_of[y] > k)
        cost += v->link[i].at[(int64_t)label[b->var[y]] * v->n + label[b->var[s->var]]];
    }
  }
  return cost;
}
