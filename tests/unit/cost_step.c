// Predicted times of collectives and steps, compared with sums done by hand: 1 TFLOP/s, 100 GB/s,
// 10 GB/s between devices, and no time for kernel launches, hops or starts, so that all times are
// proportional to sizes.

#include "unit.h"

#include <math.h>

#include "cost/cost.h"
#include "cost/cost_comm.h"
#include "cost/cost_step.h"
#include "pass.h"
#include "paths/path.h"
#include "schedule/schedule.h"

static const Cluster plain = {.nodes = 2,
                              .per_node = 8,
                              .nics = 2,
                              .inside = {0, 1 / 10e9},
                              .across = {0, 1 / 1e9},
                              .memory_speed = 100e9,
                              .f32 = 1e12,
                              .half = 8e12};

typedef struct Bench {
  Arena *a;
  Diag *d;
} Bench;

static int setup(void **state) {
  Bench *b = malloc(sizeof *b);
  *b = (Bench){arena_new(), diag_new(stderr)};
  *state = b;
  return 0;
}

static int teardown(void **state) {
  Bench *b = *state;
  diag_free(b->d);
  arena_free(b->a);
  free(b);
  return 0;
}

// Not verified: a schedule in which both ends of two moves send first is invalid, but has a time on
// targets whose senders do not wait.
static Module *read_schedule(Bench *b, const char *text) {
  Module *m = module_parse("test.nn", text, strlen(text), b->d);
  assert_non_null(m);
  return m;
}

static Module *read_text(Bench *b, const char *text) {
  Module *m = read_schedule(b, text);
  assert_true(module_verify(m, b->d));
  return m;
}

static void assert_near(double is, double want) {
  if (fabs(is - want) > 1e-9 * fabs(want)) fail_msg("%.12g, not %.12g", is, want);
}

// -- Collectives -----------------------------------------------------------------------------

// One op takes a value of f32[64,64] on eight devices of two nodes from one layout to another.
typedef struct Way {
  const char *param, *make; // a partial sum cannot be an input
  const char *op, *from, *to, *prim;
} Way;

static const Way ways[] = {
    {"f32[1,64,64] {B, S(0)}", "reduce_sum %x axes=[0] : f32[64,64] {B, P} split=[-,a]",
     "all_reduce %v axis=\"b\" : f32[64,64] {B, B}", "R(2)V(4)D(1,1)@0-3,8-11",
     "R(8)V(1)D(1,1)@0-3,8-11", "all_reduce"},
    {"f32[1,16,64] {S(0), S(1)}", "reduce_sum %x axes=[0] : f32[16,64] {P, S(0)} split=[a,b]",
     "all_reduce %v axis=\"a\" : f32[16,64] {B, S(0)}", "R(1)V(2)D(4,1)@0-3,8-11",
     "R(2)V(1)D(4,1)@0-3,8-11", "all_reduce"},
    {"f32[1,64,64] {B, S(0)}", "reduce_sum %x axes=[0] : f32[64,64] {B, P} split=[-,a]",
     "reduce_scatter %v axis=\"b\" dim=0 : f32[16,64] {B, S(0)}", "R(2)V(4)D(1,1)@0-3,8-11",
     "R(2)V(1)D(4,1)@0-3,8-11", "reduce_scatter"},
    {"f32[64,16] {B, S(1)}", "tanh %x : f32[64,16] {B, S(1)} split=[-,1]",
     "all_gather %v axis=\"b\" dim=1 : f32[64,64] {B, B}", "R(2)V(1)D(1,4)@0-3,8-11",
     "R(8)V(1)D(1,1)@0-3,8-11", "all_gather"},
    {"f32[16,64] {B, S(0)}", "tanh %x : f32[16,64] {B, S(0)} split=[-,0]",
     "all_to_all %v axis=\"b\" from=0 to=1 : f32[64,16] {B, S(1)}", "R(2)V(1)D(4,1)@0-3,8-11",
     "R(2)V(1)D(1,4)@0-3,8-11", "all_to_all"},
    {"f32[8,64] {S(0), S(0)}", "tanh %x : f32[8,64] {S(0), S(0)} split=[0,0]",
     "move %v shape=[8,64] : f32[8,64] @n {S(0), S(0)}", "R(1)V(1)D(8,1)@0-3,8-11",
     "R(1)V(1)D(8,1)@4-7,12-15", "move"},
};

static Module *module_of(Bench *b, const Way *w) {
  return read_text(b, str_format(b->a,
                                 "module phase=local\nmesh @m devices=0-3,8-11 (a=2, b=4)\n"
                                 "mesh @n devices=4-7,12-15 (a=2, b=4)\n"
                                 "graph @main entry (%%x: %s input \"x\") {\n"
                                 "  %%v = %s\n  %%r = %s\n  return output \"r\" %%r\n}\n",
                                 w->param, w->make, w->op));
}

// A collective costs the same as the path of that one step, as `nnaot-plan rvd` prints it.
static void a_collective_costs_its_primitive(void **state) {
  Bench *b = *state;
  Cluster c = plain; // with start and hop latencies
  c.start = 5e-9;
  c.inside.alpha = 1e-9;
  c.across.alpha = 3e-9;
  for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
    const Way *w = &ways[i];
    Module *m = module_of(b, w);
    const Op *op = m->graphs->last;
    TensorShape shape = {.ndim = 2, .dim = {64, 64}, .bytes = 4};
    Placement from, to;
    assert_true(placement_read(b->a, w->from, "from", &shape, &c, &from, b->d));
    assert_true(placement_read(b->a, w->to, "to", &shape, &c, &to, b->d));
    Paths *paths = paths_new(b->a, &c);
    paths_without_send_recv(paths);
    const Path *path = path_find(paths, &shape, &from, &to);
    assert_int_equal(path->n_steps, 1);
    assert_string_equal(path_prim_name[path->step[0].edge.prim], w->prim);
    CommPrices *prices = comm_prices_new(b->a, &c);
    const CommPrice *price = comm_price(prices, op);
    assert_near(price->cost.seconds, path->total.seconds);
    assert_near(price->cost.bytes, path->total.bytes);
    assert_ptr_equal(comm_price(prices, op), price);
    module_free(m);
  }
}

// A chain of moves over stages of four devices, of which each node has two.  Those that another
// move is like, in other nodes, are not put on the links again, and have the price and parties of
// their own.
static void a_move_costs_the_same_between_other_nodes(void **state) {
  enum { STAGES = 8, SIZE = 4 };
  Bench *b = *state;
  Cluster c = plain;
  c.nodes = 4;
  c.start = 5e-9;
  c.across.alpha = 3e-9;
  StrBuf text = {.arena = b->a};
  strbuf_addf(&text, "module phase=local\n");
  for (int i = 0; i < STAGES; i++)
    strbuf_addf(&text, "mesh @s%d devices=%d-%d (a=2, b=2)\n", i, SIZE * i, SIZE * i + SIZE - 1);
  strbuf_addf(&text, "graph @main entry (%%x: f32[8,32] @s0 {S(0), S(1)} input \"x\") {\n"
                     "  %%v0 = tanh %%x : f32[8,32] @s0 {S(0), S(1)} split=[0,1]\n");
  for (int i = 1; i < STAGES; i++)
    strbuf_addf(&text, "  %%v%d = move %%v%d shape=[8,32] : f32[8,32] @s%d {S(0), S(1)}\n", i,
                i - 1, i);
  strbuf_addf(&text, "  return output \"r\" %%v%d\n}\n", STAGES - 1);
  Module *m = read_text(b, text.at);
  CommPrices *together = comm_prices_new(b->a, &c);
  double within = 0, across = 0;
  int at = 0;
  for_each_op(op, m->graphs) {
    if (op->kind != OP_move) continue;
    const CommPrice *price = comm_price(together, op);
    const CommPrice *alone = comm_price(comm_prices_new(b->a, &c), op);
    assert_true(price->cost.seconds == alone->cost.seconds);
    assert_true(price->cost.bytes == alone->cost.bytes);
    assert_true(price->cost.crossing == alone->cost.crossing);
    const Parties *x = &price->parties, *y = &alone->parties;
    assert_int_equal(x->n_senders, SIZE);
    assert_int_equal(y->n_senders, SIZE);
    assert_int_equal(x->n_receivers, y->n_receivers);
    assert_memory_equal(x->sender, y->sender, SIZE * sizeof *x->sender);
    assert_memory_equal(x->receiver, y->receiver, SIZE * sizeof *x->receiver);
    assert_int_equal(price->id, at);
    *(at++ % 2 ? &across : &within) = price->cost.seconds;
  }
  assert_int_equal(at, STAGES - 1);
  assert_true(across > 2 * within);
  module_free(m);
}

// -- Steps -----------------------------------------------------------------------------------

static StepCost cost_of(Bench *b, const Module *m, Target target) {
  StepCost cost;
  assert_true(step_cost(m, &plain, target, b->a, &cost));
  return cost;
}

// A tanh of f32[n,1000] reads and writes 8 kB for each row: 80 ns.  An all_reduce of it over two
// devices sends the size of the value in each direction: 400 ns for each row.
enum { ROWS = 1000 };
static const double row = 80e-9, reduce = 400e-9;

#define TANHS                                                                                      \
  "  %a = tanh %x : f32[1000,1000] {B} split=[-]\n"                                                \
  "  %b = tanh %a : f32[1000,1000] {B} split=[-]\n"

// all_reduce is asynchronous: one tanh overlaps it, and the reader of the sum waits.
static void reducing_overlaps_what_does_not_read_it(void **state) {
  Bench *b = *state;
  Module *m = read_text(b, "module phase=local\nmesh @m devices=0-1 (dp=2)\n"
                           "graph @main entry (%x: f32[1000,1000] {B} input \"x\", "
                           "%z: f32[1,1000,1000] {S(0)} input \"z\") {\n"
                           "  %s = reduce_sum %z axes=[0] : f32[1000,1000] {P} split=[a]\n"
                           "  %r = all_reduce %s axis=\"dp\" : f32[1000,1000] {B}\n" TANHS
                           "  %c = tanh %r : f32[1000,1000] {B} split=[-]\n"
                           "  return output \"b\" %b, output \"c\" %c\n}\n");
  StepCost cost = cost_of(b, m, TARGET_cpu);
  assert_int_equal(cost.n_ranks, 2);
  assert_near(cost.rank[0]->compute, 4 * ROWS * row);
  assert_near(cost.rank[0]->comm, ROWS * reduce);
  assert_near(cost.seconds, ROWS * (row + reduce + row));
  assert_true(cost.rank[0]->idle < 1e-15 && cost.bubble < 1e-9);
  module_free(m);
}

// The reduction for a deferred update overlaps ops of the next step that do not depend on it.
static void deferred_updates_overlap_the_next_step(void **state) {
  Bench *b = *state;
  static const char *const deferred[] = {"", " deferred"};
  const double update = ROWS * 120e-9 + 8 / 100e9; // with two scalars
  const double hidden[] = {0, row};
  for (int i = 0; i < 2; i++) {
    Module *m = read_text(
        b, str_format(b->a,
                      "module phase=local\nmesh @m devices=0-1 (dp=2)\n"
                      "graph @main entry (%%x: f32[1000,1000] {B} input \"x\", "
                      "%%z: f32[1,1000,1000] {S(0)} input \"z\", "
                      "%%w: f32[1000,1000] {B} weight \"w\" train = 1) {\n"
                      "  %%a = tanh %%x : f32[1000,1000] {B} split=[-]\n"
                      "  %%b = tanh %%w : f32[1000,1000] {B} split=[-]\n"
                      "  %%s = reduce_sum %%z axes=[0] : f32[1000,1000] {P} split=[a] backward\n"
                      "  %%r = all_reduce %%s axis=\"dp\" : f32[1000,1000] {B} backward\n"
                      "  %%l = constant value=[1] shape=[] to=f32 : f32[] {B} update\n"
                      "  %%w1 = sgd %%w, %%r, %%l, %%l : f32[1000,1000] {B} update%s\n"
                      "  return output \"a\" %%a, output \"b\" %%b, update %%w %%w1\n}\n",
                      deferred[i]));
    StepCost cost = cost_of(b, m, TARGET_cpu);
    assert_near(cost.rank[0]->compute, ROWS * 3 * row + update);
    assert_near(cost.rank[0]->comm, ROWS * reduce);
    assert_near(cost.seconds, ROWS * (3 * row + reduce - hidden[i]) + update);
    assert_true(cost.rank[0]->idle < 1e-15);
    module_free(m);
  }
}

// Other collectives are synchronous, and wait for the all_reduce before them.
static void gathering_waits(void **state) {
  Bench *b = *state;
  Module *m = read_text(b, "module phase=local\nmesh @m devices=0-1 (dp=2)\n"
                           "graph @main entry (%x: f32[1000,1000] {B} input \"x\", "
                           "%y: f32[500,1000] {S(0)} input \"y\", "
                           "%z: f32[1,1000,1000] {S(0)} input \"z\") {\n"
                           "  %s = reduce_sum %z axes=[0] : f32[1000,1000] {P} split=[a]\n"
                           "  %r = all_reduce %s axis=\"dp\" : f32[1000,1000] {B}\n"
                           "  %g = all_gather %y axis=\"dp\" dim=0 : f32[1000,1000] {B}\n" TANHS
                           "  return output \"b\" %b, output \"g\" %g, output \"r\" %r\n}\n");
  StepCost cost = cost_of(b, m, TARGET_cpu);
  assert_near(cost.rank[0]->comm, ROWS * (reduce + reduce / 2));
  assert_near(cost.seconds, ROWS * (3 * row + reduce + reduce / 2));
  module_free(m);
}

// Two stages: while one works the other waits.  On a GPU the sender waits for the receiver.
static const char stages[] = "module phase=local\n"
                             "mesh @s devices=0-1 (dp=2%s)\nmesh @t devices=2-3 (dp=2%s)\n"
                             "graph @main entry (%%x: f32[500,1000] {S(0)%s} input \"x\") {\n"
                             "  %%a = tanh %%x : f32[500,1000] {S(0)%s} split=[0%s]\n"
                             "  %%m = move %%a shape=[500,1000] : f32[500,1000] @t {S(0)%s}\n"
                             "  %%b = tanh %%m : f32[500,1000] @t {S(0)%s} split=[0%s]\n"
                             "  %%c = tanh %%b : f32[500,1000] @t {S(0)%s} split=[0%s]\n"
                             "  %%n = move %%c shape=[500,1000] : f32[500,1000] {S(0)%s}\n"
                             "  %%d = tanh %%n : f32[500,1000] {S(0)%s} split=[0%s]\n"
                             "  return output \"d\" %%d\n}\n";

static Module *read_stages(Bench *b, int slices) {
  const char *axis = slices > 1 ? str_format(b->a, ", mb=%d:time", slices) : "";
  const char *layout = slices > 1 ? ", S(0)" : "", *split = slices > 1 ? ",0" : "";
  return read_text(b, str_format(b->a, stages, axis, axis, layout, layout, split, layout, layout,
                                 split, layout, split, layout, layout, split));
}

static void stages_take_turns(void **state) {
  Bench *b = *state;
  Module *m = read_stages(b, 1);
  // 500 rows of 4 kB go over each link.
  double op = ROWS / 2 * row, move = ROWS / 2 * reduce;
  StepCost cost = cost_of(b, m, TARGET_cpu);
  assert_int_equal(cost.n_ranks, 4);
  assert_near(cost.seconds, 4 * op + 2 * move);
  for (int i = 0; i < 4; i++) {
    bool first = cost.device[i] < 2;
    assert_near(cost.rank[i]->compute, 2 * op);
    assert_near(cost.rank[i]->comm, 2 * move);
    assert_near(cost.rank[i]->idle, 2 * op);
    assert_ptr_equal(cost.rank[i], cost.rank[first ? 0 : 2]);
  }
  assert_near(cost.bubble, 2 * op / cost.seconds);
  assert_near(cost_of(b, m, TARGET_cuda).seconds, cost.seconds);
  module_free(m);
}

// On CPUs a rank that only sends continues at once; on GPUs it waits for the receiver, and so does
// the step.
static void senders_go_on_on_processors(void **state) {
  Bench *b = *state;
  Module *m = read_text(b, "module phase=local\nmesh @s devices=0 ()\nmesh @t devices=1 ()\n"
                           "graph @main entry (%x: f32[1000,1000] {} input \"x\") {\n"
                           "  %a = tanh %x : f32[1000,1000] {}\n"
                           "  %m = move %a shape=[1000,1000] : f32[1000,1000] @t {}\n"
                           "  %b = tanh %a : f32[1000,1000] {}\n"
                           "  %c = tanh %b : f32[1000,1000] {}\n"
                           "  return output \"c\" %c, output \"m\" %m\n}\n");
  StepCost cpu = cost_of(b, m, TARGET_cpu);
  assert_near(cpu.seconds, ROWS * (row + reduce));
  assert_true(cpu.rank[0]->idle < 1e-15); // its queue still sends
  StepCost cuda = cost_of(b, m, TARGET_cuda);
  assert_near(cuda.seconds, ROWS * (3 * row + reduce));
  assert_near(cuda.rank[1]->idle, ROWS * 3 * row);
  module_free(m);
}

// A collective synchronises its group: along dp the ranks of one stage do not wait for those of the
// other, along pp they do.
static void groups_wait_for_themselves(void **state) {
  Bench *b = *state;
  static const char text[] =
      "module phase=local\nmesh @all devices=0-3 (pp=2, dp=2)\n"
      "mesh @s devices=0-1 (dp=2)\nmesh @t devices=2-3 (dp=2)\n"
      "graph @main entry (%%x: f32[1000,1000] @s {B} input \"x\", "
      "%%z: f32[1000,1000] @t {B} input \"z\", %%y: f32[500,1000] {%s} input \"y\") {\n"
      "  %%a = tanh %%x : f32[1000,1000] @s {B} split=[-]\n"
      "  %%g = all_gather %%y axis=\"%s\" dim=0 : f32[1000,1000] {B, B}\n"
      "  %%b = tanh %%z : f32[1000,1000] @t {B} split=[-]\n"
      "  return output \"a\" %%a, output \"b\" %%b, output \"g\" %%g\n}\n";
  Module *along = read_text(b, str_format(b->a, text, "B, S(0)", "dp"));
  assert_near(cost_of(b, along, TARGET_cpu).seconds, ROWS * (row + reduce / 2));
  Module *across = read_text(b, str_format(b->a, text, "S(0), B", "pp"));
  assert_near(cost_of(b, across, TARGET_cpu).seconds, ROWS * (2 * row + reduce / 2));
  module_free(along);
  module_free(across);
}

// The time grows linearly with the number of micro-batches.
static void micro_batches_add_up(void **state) {
  Bench *b = *state;
  double before = 0, last = 0, idle = 0;
  for (int n = 2; n < 9; n++) {
    Module *m = read_stages(b, n);
    StepCost cost = cost_of(b, m, TARGET_cuda);
    if (n > 3) assert_near(cost.seconds - before, last);
    if (n > 3) assert_near(cost.rank[0]->idle / idle, (double)n / (n - 1));
    last = cost.seconds - before;
    before = cost.seconds;
    idle = cost.rank[0]->idle;
    assert_near(cost.rank[0]->compute, n * ROWS * row);
    module_free(m);
  }
  Module *m = read_stages(b, 1000);
  assert_near(cost_of(b, m, TARGET_cuda).seconds, 1000 * last);
  module_free(m);
}

static void nothing_is_said_of_what_is_not_known(void **state) {
  Bench *b = *state;
  StepCost cost;
  Cluster c = plain;
  Module *m = read_stages(b, 1);
  c.memory_speed = 0;
  assert_false(step_cost(m, &c, TARGET_cpu, b->a, &cost));
  c = plain;
  c.nodes = 1;
  c.per_node = 3; // for four ranks
  assert_false(step_cost(m, &c, TARGET_cpu, b->a, &cost));
  module_free(m);
}

// -- Schedules -------------------------------------------------------------------------------

// Three slices over two stages; a tanh takes 1 ms, a move MOVE ms.
static const char scheduled[] =
    "module phase=local\nmesh @s devices=0 (mb=3:time)\nmesh @t devices=1 (mb=3:time)\n"
    "graph @main entry (%%x: f32[%d,1000] {S(0)} input \"x\") {\n"
    "  %%a = tanh %%x : f32[%d,1000] {S(0)} split=[0] segment=F0\n"
    "  %%m = move %%a shape=[%d,1000] : f32[%d,1000] @t {S(0)} segment=F1\n"
    "  %%b = tanh %%m : f32[%d,1000] @t {S(0)} split=[0] segment=F1\n"
    "  return output \"b\" %%b\n"
    "  run devices=0 %s\n  run devices=1 %s\n}\n";

static Module *read_scheduled(Bench *b, const char *first, const char *second) {
  int n = ROWS;
  return read_text(b, str_format(b->a, scheduled, n, n, n, n, n, first, second));
}

static StepCost cost_between(Bench *b, const Module *m, Target target, double beta) {
  StepCost cost;
  Cluster c = plain;
  c.inside.beta = beta;
  assert_true(step_cost(m, &c, target, b->a, &cost));
  return cost;
}

// The first stage continues while its results are sent, one after the other in its queue; the
// second stage waits for each.
static void stages_work_at_the_same_time(void **state) {
  Bench *b = *state;
  Module *m = read_scheduled(b, "F0*3", "(get %m F1)*3");
  double op = ROWS * row, move = ROWS * reduce; // the longer one
  StepCost cost = cost_of(b, m, TARGET_cpu);
  assert_near(cost.seconds, op + 3 * move + op);
  assert_near(cost.span, cost.seconds - op > op + 3 * move ? cost.seconds - op : op + 3 * move);
  assert_near(cost.rank[0]->compute, 3 * op);
  assert_near(cost.rank[0]->comm, 3 * move);
  assert_near(cost.rank[1]->comm, 3 * move - 2 * op); // a get begins after the ops before it
  assert_near(cost.rank[1]->idle, op);                // while the first op runs
  module_free(m);
}

// On GPUs a move begins when both ends are ready: the get of slice 1 follows the ops of slice 0,
// and later sends in the queue wait for it.
static void gets_have_their_place(void **state) {
  Bench *b = *state;
  double op = ROWS * row, move = op / 10, beta = move / (4000.0 * ROWS);
  Module *early = read_scheduled(b, "F0*3", "(get %m)*3 F1*3");
  Module *late = read_scheduled(b, "F0*3", "(get %m F1)*3");
  assert_near(cost_between(b, early, TARGET_cuda, beta).seconds, op + move + 3 * op);
  // The get enters the queue when the op before it begins.
  assert_near(cost_between(b, late, TARGET_cuda, beta).seconds, op + 3 * (move + op));
  assert_near(cost_between(b, late, TARGET_cpu, beta).seconds, op + move + 3 * op);
  module_free(early);
  module_free(late);
}

// Receives have a queue of their own: an all_gather of the same stage overtakes a pending move.
static void collectives_pass_moves(void **state) {
  Bench *b = *state;
  static const char text[] =
      "module phase=local\nmesh @s devices=0 (mb=2:time)\nmesh @t devices=1-2 (mb=2:time, dp=2)\n"
      "graph @main entry (%%x: f32[%d,1000] {S(0)} input \"x\", "
      "%%y: f32[%d,1000] @t {S(0), S(0)} input \"y\") {\n"
      "  %%a = tanh %%x : f32[%d,1000] {S(0)} split=[0] segment=F0\n"
      "  %%g = all_gather %%y axis=\"dp\" dim=0 : f32[%d,1000] @t {S(0), B} segment=G1\n"
      "  %%e = tanh %%g : f32[%d,1000] @t {S(0), B} split=[0,-] segment=G1\n"
      "  %%m = move %%a shape=[%d,1000] : f32[%d,1000] @t {S(0), B} segment=F1\n"
      "  %%c = tanh %%m : f32[%d,1000] @t {S(0), B} split=[0,-] segment=F1\n"
      "  return output \"e\" %%e, output \"c\" %%c\n"
      "  run devices=0 F0*2\n  run devices=1-2 (get %%m G1 F1)*2\n}\n";
  int n = ROWS;
  Module *m = read_text(b, str_format(b->a, text, n, n / 2, n, n, n, n, n, n));
  StepCost cost = cost_of(b, m, TARGET_cuda);
  double op = ROWS * row, gather = ROWS * reduce / 2, move = 2 * ROWS * reduce;
  // Slice 0 waits for its move; slice 1 receives it during the all_gather.
  double first = fmax(op + move, gather + op) + op;
  assert_near(cost.seconds, first + fmax(move, gather + op) + op);
  assert_near(cost.rank[1]->compute, 4 * op);
  assert_near(cost.rank[1]->comm, op + move + move); // overlapping communication counts once
  assert_true(cost.rank[1]->idle < 1e-15);
  module_free(m);
}

// A deadlock has no predicted time.
static void circles_have_no_price(void **state) {
  Bench *b = *state;
  static const char text[] =
      "module phase=local\nmesh @s devices=0 (mb=2:time)\nmesh @t devices=1 (mb=2:time)\n"
      "graph @main entry (%x: f32[8,8] {S(0)} input \"x\", %y: f32[8,8] @t {S(0)} input \"y\") {\n"
      "  %a = tanh %x : f32[8,8] {S(0)} split=[0] segment=F0\n"
      "  %b = tanh %y : f32[8,8] @t {S(0)} split=[0] segment=G0\n"
      "  %m = move %a shape=[8,8] : f32[8,8] @t {S(0)} segment=G1\n"
      "  %c = tanh %m : f32[8,8] @t {S(0)} split=[0] segment=G1\n"
      "  %n = move %b shape=[8,8] : f32[8,8] {S(0)} segment=F1\n"
      "  %d = tanh %n : f32[8,8] {S(0)} split=[0] segment=F1\n"
      "  return output \"c\" %c, output \"d\" %d\n"
      "  run devices=0 F0 get %n F1 F0 get %n F1\n  run devices=1 G0 get %m G1 G0 get %m G1\n}\n";
  Module *m = read_schedule(b, text);
  StepCost cost;
  assert_true(step_cost(m, &plain, TARGET_cpu, b->a, &cost));
  assert_false(step_cost(m, &plain, TARGET_cuda, b->a, &cost)); // both send first
  module_free(m);
}

// -- Random schedules ------------------------------------------------------------------------

// A pipeline of stages, forwards and backwards: works 0 … 2P-1; work i depends on i - 1.
typedef struct Random {
  Bench *b;
  unsigned seed;
  int n_stages, n_slices;
  int ops[16]; // the number of ops of each work
  Blocks *blocks;
  double *key;
} Random;

static int draw(Random *r, int n) {
  r->seed = r->seed * 1103515245u + 12345u;
  return (int)(r->seed >> 16) % n;
}

static int stage_of(const Random *r, int work) {
  return work < r->n_stages ? work : 2 * r->n_stages - 1 - work;
}

static const char *segment_of(const Random *r, int work) {
  return str_format(r->b->a, "%c%d", work < r->n_stages ? 'F' : 'B', stage_of(r, work));
}

static void make_pipeline(Random *r) {
  Arena *a = r->b->a;
  int n = 2 * r->n_stages;
  Work *work = arena_array(a, Work, n);
  for (int i = 0; i < n; i++) {
    int *device = arena_one(a, int);
    WorkAfter *after = arena_one(a, WorkAfter);
    *device = stage_of(r, i);
    after->work = i - 1;
    r->ops[i] = 1 + draw(r, 3);
    work[i] = (Work){.kind = i < r->n_stages ? WORK_F : WORK_B,
                     .stage = stage_of(r, i),
                     .time = r->ops[i] * 8 * row,
                     .device = device,
                     .n_devices = 1,
                     .after = after,
                     .n_after = i > 0};
  }
  Route *route = arena_one(a, Route);
  *route = (Route){work, n};
  Pipeline *p = arena_one(a, Pipeline);
  *p = (Pipeline){r->n_stages, r->n_slices, route, 1, arena_array(a, int, r->n_slices), 1};
  r->blocks = blocks_new(a, p);
}

// Draws an order of all blocks that respects their dependencies and keeps the order of slices.
static void draw_order(Random *r) {
  int n = 2 * r->n_stages,
      *next = arena_array(r->b->a, int, r->n_slices); // the next work of each slice
  r->key = arena_array(r->b->a, double, r->blocks->n);
  for (int done = 0; done < r->blocks->n;) {
    int m = draw(r, r->n_slices);
    if (next[m] == n || (m > 0 && next[m] == next[m - 1])) continue;
    r->key[r->blocks->first[m] + next[m]++] = done++;
  }
}

// Returns the run of a stage: its blocks, and between them a get for each value from another stage,
// in the order of their production.
static const char *run_text(const Random *r, const Timeline *t, int stage) {
  StrBuf out = {.arena = r->b->a};
  const Blocks *b = r->blocks;
  bool *got = arena_array(r->b->a, bool, b->n);
  for (int at = t->at[stage]; at < t->at[stage + 1]; at++) {
    for (int next = 0; next >= 0;) {
      next = -1; // the first produced value that is ready and not yet received
      for (int k = 0; k < b->n; k++) {
        int work = k - b->first[b->micro_batch[k]];
        bool ours = work + 1 < 2 * r->n_stages && stage_of(r, work + 1) == stage &&
                    stage_of(r, work) != stage && !got[k];
        if (ours && t->end[k] < t->end[t->block[at]] && (next < 0 || t->end[k] < t->end[next]))
          next = k;
      }
      if (next < 0) break;
      got[next] = true;
      strbuf_addf(&out, "get %%m%d ", next - b->first[b->micro_batch[next]] + 1);
    }
    int block = t->block[at];
    strbuf_addf(&out, "%s ", segment_of(r, block - b->first[b->micro_batch[block]]));
  }
  return out.at;
}

static Module *random_module(const Random *r, const Timeline *t) {
  StrBuf text = {.arena = r->b->a};
  int n = 2 * r->n_stages, mb = r->n_slices;
  strbuf_add(&text, "module phase=local\n");
  for (int i = 0; i < r->n_stages; i++)
    strbuf_addf(&text, "mesh @s%d devices=%d (mb=%d:time)\n", i, i, mb);
  strbuf_add(&text, "graph @main entry (%x: f32[8,1000] {S(0)} input \"x\") {\n");
  const char *last = "x";
  for (int i = 0; i < n; i++) {
    int stage = stage_of(r, i);
    const char *segment = segment_of(r, i);
    if (i && stage != stage_of(r, i - 1)) {
      strbuf_addf(&text,
                  "  %%m%d = move %%%s shape=[8,1000] : f32[8,1000] @s%d {S(0)} segment=%s\n", i,
                  last, stage, segment);
      last = str_format(r->b->a, "m%d", i);
    }
    for (int k = 0; k < r->ops[i]; k++) {
      const char *made = str_format(r->b->a, "v%d_%d", i, k);
      strbuf_addf(&text, "  %%%s = tanh %%%s : f32[8,1000] @s%d {S(0)} split=[0] segment=%s\n",
                  made, last, stage, segment);
      last = made;
    }
  }
  strbuf_addf(&text, "  return output \"y\" %%%s\n", last);
  for (int i = 0; i < r->n_stages; i++)
    strbuf_addf(&text, "  run devices=%d %s\n", i, run_text(r, t, i));
  strbuf_add(&text, "}\n");
  return read_schedule(r->b, text.at);
}

// If only segments take time, the step time equals the makespan of the same orders in the library
// of schedules.
static void steps_take_what_schedules_say(void **state) {
  Bench *b = *state;
  for (unsigned seed = 0; seed < 60; seed++) {
    Random r = {.b = b, .seed = seed, .n_stages = 1 + (int)seed % 5, .n_slices = 1 + (int)seed % 7};
    make_pipeline(&r);
    draw_order(&r);
    Timeline t;
    assert_true(schedule_sorted(b->a, r.blocks, r.key, &t));
    Module *m = random_module(&r, &t);
    StepCost cost = cost_between(b, m, TARGET_cpu, 1e-30);
    assert_near(cost.seconds, t.makespan);
    assert_near(cost.span, t.span);
    if (fabs(cost.bubble - t.bubble) > 1e-9) fail_msg("%g, not %g", cost.bubble, t.bubble);
    module_free(m);
  }
}

// -- Cuts ------------------------------------------------------------------------------------

static const char mlp[] =
    "module phase=typed\n"
    "graph @main entry (%x: f32[64,128] input \"x\", %i: i32[64] input \"i\",\n"
    "  %w: f32[128,512] weight \"w\" train = normal(0,1),\n"
    "  %v: f32[512,128] weight \"v\" train = normal(0,1),\n"
    "  %e: f32[1000,128] weight \"e\" train = normal(0,1),\n"
    "  %u: f32[128,16] weight \"u\" train = normal(0,1), %y: i32[64] input \"y\") {\n"
    "  %e0 = gather %e, %i axis=0\n  %x0 = add %x, %e0\n"
    "  %a = linear %x0, %w\n  %b = gelu %a\n  %c = linear %b, %v\n  %d = add %x0, %c\n"
    "  %l = linear %d, %u\n  %loss, %lse = cross_entropy %l, %y ignore=-1\n"
    "  %sum = reduce_sum %loss axes=[0]\n  return output \"loss\" %sum\n}\n";

// The cost of a split equals the cost of the split op: estimates agree before and after comm makes
// types local.
static void local_ops_cost_what_their_cuts_did(void **state) {
  Bench *b = *state;
  static const char *const plans[] = {
      "shard(mesh=dp:4 plan=\"dp\")", "shard(mesh=tp:4 plan=\"tp\")",
      "shard(mesh=zero3:4 plan=\"zero3\")", "shard(mesh=dp:2+tp:4 plan=\"dp,tp\")"};
  for (size_t i = 0; i < sizeof plans / sizeof *plans; i++) {
    Module *m = read_text(b, mlp);
    PipelineOptions o = {0};
    const char *step = str_format(b->a, "loss,autodiff,optimizer(name=adamw),%s", plans[i]);
    assert_true(pipeline_run(m, step, &o, b->d));
    const Graph *g = m->graphs;
    double *seconds = arena_array(b->a, double, g->n_ops), whole = 0, parts = 0;
    Op **op_of = arena_array(b->a, Op *, g->n_ops);
    int n = 0, same = 0;
    for_each_op(op, g) {
      Dims dims;
      assert_true(op_dims(op, &dims, b->d));
      OpWork w = op_work(op, &dims);
      Cut cut = op_cut(op, &dims);
      op_of[n] = op;
      seconds[n++] = work_seconds(&plain, &w, &cut);
      whole += work_seconds(&plain, &w, NULL);
      parts += work_seconds(&plain, &w, &cut);
    }
    assert_true(pipeline_run(m, "comm", &o, b->d));
    for_each_op(op, g)
      for (int k = 0; k < n; k++) {
        if (op_of[k] != op) continue;
        assert_near(op_seconds(&plain, op), seconds[k]);
        same++;
      }
    assert_int_equal(same, n);
    assert_true(parts < whole);
    module_free(m);
  }
}

TEST_GROUP(cost_step) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(a_collective_costs_its_primitive, setup, teardown),
      cmocka_unit_test_setup_teardown(a_move_costs_the_same_between_other_nodes, setup, teardown),
      cmocka_unit_test_setup_teardown(reducing_overlaps_what_does_not_read_it, setup, teardown),
      cmocka_unit_test_setup_teardown(deferred_updates_overlap_the_next_step, setup, teardown),
      cmocka_unit_test_setup_teardown(gathering_waits, setup, teardown),
      cmocka_unit_test_setup_teardown(stages_take_turns, setup, teardown),
      cmocka_unit_test_setup_teardown(senders_go_on_on_processors, setup, teardown),
      cmocka_unit_test_setup_teardown(groups_wait_for_themselves, setup, teardown),
      cmocka_unit_test_setup_teardown(micro_batches_add_up, setup, teardown),
      cmocka_unit_test_setup_teardown(nothing_is_said_of_what_is_not_known, setup, teardown),
      cmocka_unit_test_setup_teardown(stages_work_at_the_same_time, setup, teardown),
      cmocka_unit_test_setup_teardown(gets_have_their_place, setup, teardown),
      cmocka_unit_test_setup_teardown(collectives_pass_moves, setup, teardown),
      cmocka_unit_test_setup_teardown(circles_have_no_price, setup, teardown),
      cmocka_unit_test_setup_teardown(steps_take_what_schedules_say, setup, teardown),
      cmocka_unit_test_setup_teardown(local_ops_cost_what_their_cuts_did, setup, teardown),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
