// See repeats_net.h: nodes and their labels, the order of groups, and the contraction of groups.

#include "repeats_net.h"

#include <string.h>

#include "ir/intern.h"
#include "ir/op.h"

// -- Labels ----------------------------------------------------------------------------------

typedef struct Label {
  const Op *op; // the first with this label
  int label;
  struct Label *next;
} Label;

struct Labels {
  Arena *arena;
  Label **bucket;
  uint64_t n_buckets;
  int n; // the last label given
};

Labels *labels_new(int n_ops, Arena *a) {
  Labels *l = arena_one(a, Labels);
  *l = (Labels){a, arena_array(a, Label *, n_ops + 1), (uint64_t)n_ops + 1, NEVER};
  return l;
}

int label_new(Labels *l) {
  return ++l->n;
}

// The class of an operand besides its type: a trained or a frozen persistent parameter, or any
// other.
static int operand_class(const Value *v) {
  return value_lasts(v) ? 1 + v->train : 0;
}

static bool same_value(const Value *x, const Value *y) {
  return x->type == y->type && x->layout == y->layout;
}

static bool same_label(const Op *x, const Op *y) {
  if (x->kind != y->kind || x->n_in != y->n_in || x->n_out != y->n_out || x->callee != y->callee ||
      memcmp(x->split, y->split, sizeof x->split) != 0)
    return false;
  for (int i = 0; i < x->n_in; i++) {
    const Value *v = x->in[i].value, *w = y->in[i].value;
    if (!same_value(v, w) || operand_class(v) != operand_class(w)) return false;
  }
  for (int i = 0; i < x->n_out; i++)
    if (!same_value(x->out[i], y->out[i])) return false;
  return x->part == y->part && x->piece == y->piece && op_same_attrs(x, y);
}

// The label of an op. A call has unique attributes and is in no block.
static int label_of(Labels *l, const Op *op) {
  if (op->kind == OP_call) return NEVER;
  // Ops with one label have one hash.
  uint64_t h = hash_mix((uint64_t)op->kind, (uint64_t)op->n_in);
  h = hash_mix(h, (uint64_t)op->part * 64 + (uint64_t)op->piece);
  int n;
  op_attr_specs(op->kind, &n);
  for (int i = 0; i < n; i++)
    h = attr_bucket(h, &op->attrs[i]);
  for (int i = 0; i < op->n_in; i++)
    h = hash_mix(h, (uint64_t)type_count(op->in[i].value->type));
  Label **bucket = &l->bucket[(h ^ h >> 32) % l->n_buckets], *at = *bucket;
  // A new label, if no op is the same.
  while (at && !same_label(at->op, op))
    at = at->next;
  if (!at) {
    at = arena_one(l->arena, Label);
    *at = (Label){op, label_new(l), *bucket};
    *bucket = at;
  }
  return at->label;
}

// -- Nets ------------------------------------------------------------------------------------

static void add_readers(Net *net, Arena *a) {
  // Readers are counted first, to allocate their lists.
  for (int i = 0; i < net->n; i++)
    for (int j = 0; j < net->node[i].n_in; j++)
      if (net->node[i].in[j].node != OUTSIDE) net->node[net->node[i].in[j].node].n_readers++;
  for (int i = 0; i < net->n; i++) {
    net->node[i].reader = arena_array(a, Reader, net->node[i].n_readers);
    net->node[i].n_readers = 0;
  }
  for (int i = 0; i < net->n; i++)
    for (int j = 0; j < net->node[i].n_in; j++) {
      Edge e = net->node[i].in[j];
      if (e.node == OUTSIDE) continue;
      Node *from = &net->node[e.node];
      from->reader[from->n_readers++] = (Reader){i, j, e.slot};
    }
}

// Whether two readers of the op's results have one label and read the same operand.
static bool read_alike(const Net *net, const int *node_of, const Op *op) {
  for (int i = 0; i < op->n_out; i++)
    for_each_use(u, op->out[i])
      for (const Use *v = u->next; u->user && v; v = v->next)
        if (v->user && u->index == v->index && net->node[node_of[u->user->id]].label != NEVER &&
            net->node[node_of[u->user->id]].label == net->node[node_of[v->user->id]].label)
          return true;
  return false;
}

// An op on persistent parameters alone that several ops read in the same way, as a model that goes
// through its layers several times reads the broadcast of a bias, is in no block: it would be in
// the block of the first of these forwards only, which would be unlike the others.
static void exclude_shared(Net *net, const Graph *g, const int *node_of, Arena *a) {
  bool *lasts = arena_array(a, bool, g->n_ops), *shared = arena_array(a, bool, g->n_ops);
  for_each_op(op, g) {
    lasts[op->id] = op->n_in > 0;
    for (int i = 0; i < op->n_in; i++) {
      const Value *v = op->in[i].value;
      lasts[op->id] &= v->def ? lasts[v->def->id] : value_lasts(v);
    }
  }
  for (const Op *op = g->last; op; op = op->prev) {
    if (!lasts[op->id]) continue;
    // So are ops that only such ops read.
    bool used = false, all = true;
    for (int i = 0; i < op->n_out; i++)
      for_each_use(u, op->out[i]) {
        used = true;
        all &= u->user && shared[u->user->id];
      }
    shared[op->id] = (used && all) || read_alike(net, node_of, op);
    if (shared[op->id]) net->node[node_of[op->id]].label = NEVER;
  }
}

Net net_of_graph(const Graph *g, const bool *among, Labels *labels, Arena *a) {
  int *node_of = arena_array(a, int, g->n_ops);
  Net net = {.worlds = 1, .node = arena_array(a, Node, g->n_ops)};
  // One node per op; only ops in `among` can repeat.
  for_each_op(op, g) {
    Node *node = &net.node[net.n];
    node_of[op->id] = net.n;
    // Gradients and updates that cannot repeat are as if they were not there: layers are those of
    // the model, whichever of their values backward reads, or recomputes.
    bool alone = among && !among[op->id] && op->part != PART_forward;
    *node = (Node){.label = !among || among[op->id] ? label_of(labels, op) : NEVER,
                   .first = net.n,
                   .n_ops = 1,
                   .n_in = alone ? 0 : op->n_in,
                   .in = arena_array(a, Edge, op->n_in),
                   .member = arena_one(a, Member)};
    node->member->op = op;
    for (int i = 0; i < node->n_in; i++) {
      const Value *v = op->in[i].value;
      node->in[i] = v->def ? (Edge){node_of[v->def->id], v->index} : (Edge){OUTSIDE, 0};
    }
    net.n++;
  }
  exclude_shared(&net, g, node_of, a);
  add_readers(&net, a);
  return net;
}

Net net_inside(const Net *net, const Tuples *t, Arena *a) {
  Net in = {t->n, net->worlds * t->k, arena_array(a, Node, t->n)};
  int *position = arena_array(a, int, net->n);
  // Occurrence 0 gives the structure; edges from outside lose their source.
  for (int i = 0; i < net->n; i++)
    position[i] = OUTSIDE;
  for (int p = 0; p < t->n; p++)
    position[t->node[p * t->k]] = p;
  // Members are those of all occurrences, in every world.
  for (int p = 0; p < t->n; p++) {
    const Node *from = &net->node[t->node[p * t->k]];
    Node *node = &in.node[p];
    *node = *from;
    node->n_readers = 0;
    node->in = arena_array(a, Edge, from->n_in);
    for (int j = 0; j < from->n_in; j++) {
      Edge e = from->in[j];
      int at = e.node == OUTSIDE ? OUTSIDE : position[e.node];
      node->in[j] = (Edge){at, at == OUTSIDE ? 0 : e.slot};
    }
    node->member = arena_array(a, Member, in.worlds);
    for (int w = 0; w < net->worlds; w++)
      for (int i = 0; i < t->k; i++)
        node->member[w * t->k + i] = net->node[t->node[p * t->k + i]].member[w];
  }
  add_readers(&in, a);
  return in;
}

// -- Order -----------------------------------------------------------------------------------

// The groups that are ready, as a binary heap with the earliest first op on top.
typedef struct Free {
  int *group, *key, n;
} Free;

static void free_add(Free *f, int group) {
  int i = f->n++;
  for (; i > 0 && f->key[f->group[(i - 1) / 2]] > f->key[group]; i = (i - 1) / 2)
    f->group[i] = f->group[(i - 1) / 2];
  f->group[i] = group;
}

static int free_take(Free *f) {
  int top = f->group[0], last = f->group[--f->n], i = 0;
  for (;;) {
    int child = 2 * i + 1;
    if (child >= f->n) break;
    if (child + 1 < f->n && f->key[f->group[child + 1]] < f->key[f->group[child]]) child++;
    if (f->key[f->group[child]] >= f->key[last]) break;
    f->group[i] = f->group[child];
    i = child;
  }
  f->group[i] = last;
  return top;
}

bool node_is_ready(const Net *net, const int *group, int node, const bool *done) {
  for (int j = 0; j < net->node[node].n_in; j++) {
    int from = net->node[node].in[j].node;
    if (from != OUTSIDE && !done[group[from]]) return false;
  }
  return true;
}

bool net_order(const Net *net, const int *group, int n_groups, int *order, bool *done, Arena *a) {
  int *waits = arena_array(a, int, n_groups), *next = arena_array(a, int, net->n);
  int *head = arena_array(a, int, n_groups), n = 0;
  Free ready = {arena_array(a, int, n_groups), arena_array(a, int, n_groups), 0};
  // `waits` counts the edges from other groups that are not done.
  for (int g = 0; g < n_groups; g++) {
    done[g] = false;
    head[g] = OUTSIDE;
    ready.key[g] = INT32_MAX;
  }
  // Nodes of a group are a list.
  for (int i = net->n - 1; i >= 0; i--) {
    const Node *node = &net->node[i];
    int g = group[i];
    next[i] = head[g];
    head[g] = i;
    if (node->first < ready.key[g]) ready.key[g] = node->first;
    for (int j = 0; j < node->n_in; j++)
      waits[g] += node->in[j].node != OUTSIDE && group[node->in[j].node] != g;
  }
  for (int g = 0; g < n_groups; g++)
    if (!waits[g]) free_add(&ready, g);
  // A ready group with the earliest op is next.
  while (ready.n) {
    int g = order[n++] = free_take(&ready);
    done[g] = true;
    for (int i = head[g]; i != OUTSIDE; i = next[i])
      for (int r = 0; r < net->node[i].n_readers; r++) {
        int to = group[net->node[i].reader[r].node];
        if (to != g && --waits[to] == 0) free_add(&ready, to);
      }
  }
  return n == n_groups;
}

// -- Contraction -----------------------------------------------------------------------------

static int node_at(const Group *g, int p) {
  return g->tuples ? g->tuples->node[p * g->tuples->k + g->occurrence] : g->occurrence;
}

Net net_contract(const Net *net, const Group *info, const int *group, int n_groups,
                 const int *order, Arena *a) {
  Net to = {n_groups, net->worlds, arena_array(a, Node, n_groups)};
  int *new_of = arena_array(a, int, n_groups);
  // The first slot of every node among the slots of its future node.
  int *base = arena_array(a, int, net->n), *n_slots = arena_array(a, int, net->n);
  for (int i = 0; i < net->n; i++)
    for (int r = 0; r < net->node[i].n_readers; r++)
      if (net->node[i].reader[r].slot >= n_slots[i]) n_slots[i] = net->node[i].reader[r].slot + 1;
  for (int g = 0; g < n_groups; g++) {
    const Tuples *t = info[g].tuples;
    if (!t || info[g].occurrence) continue;
    for (int p = 0, at = 0; p < t->n; p++) {
      // Some results may be read in some occurrences only.
      int most = 0;
      for (int i = 0; i < t->k; i++) {
        base[t->node[p * t->k + i]] = at;
        if (n_slots[t->node[p * t->k + i]] > most) most = n_slots[t->node[p * t->k + i]];
      }
      at += most;
    }
  }
  for (int i = 0; i < n_groups; i++)
    new_of[order[i]] = i;
  for (int i = 0; i < n_groups; i++) {
    int g = order[i];
    const Tuples *t = info[g].tuples;
    to.node[i] = (Node){.label = info[g].label, .first = INT32_MAX, .member = info[g].member};
    // The new node has the operands of all its nodes.
    int n_in = 0;
    for (int p = 0; p < (t ? t->n : 1); p++)
      n_in += net->node[node_at(&info[g], p)].n_in;
    to.node[i].in = arena_array(a, Edge, n_in);
    for (int p = 0; p < (t ? t->n : 1); p++) {
      // Edges of contracted nodes lead to the groups of their producers.
      Node *node = &to.node[i];
      const Node *from = &net->node[node_at(&info[g], p)];
      node->n_ops += from->n_ops;
      if (from->first < node->first) node->first = from->first;
      for (int j = 0; j < from->n_in; j++) {
        Edge e = from->in[j];
        if (e.node == OUTSIDE)
          node->in[node->n_in++] = e;
        else if (group[e.node] != g)
          node->in[node->n_in++] = (Edge){new_of[group[e.node]], base[e.node] + e.slot};
      }
    }
  }
  add_readers(&to, a);
  return to;
}
