// Derives the axes of the devices from the shards of each tensor on every device.
//
//     device   0 1 2 3              "x" is in 2 shards, on devices 0, 1 and 2, 3
//     shard    0 0 1 1    of "x"    "w" is in 2 shards, on devices 0, 2 and 1, 3
//     shard    0 1 0 1    of "w"    =>  axes of 2 and 2: "x" {S(0), B}, "w" {B, S(1)}
//
// Devices are a grid in their order, the last axis the fastest.  The change of a shard's number
// from device to device determines the strides of the axes: it is constant along axes that do not
// split the dimension, then increases evenly along one that does, and so on.  The strides of all
// tensors together must divide one another.  Then some of the axes split every dimension, the
// outermost into the largest pieces, which is checked device by device.
//
// Stages are one more axis: each has the devices of its nodes' tensors or, if none names any, a run
// of devices.  All stages are the same grid; a device's position in it is its number without the
// digit of the stage.

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "frontend/onnx_devices.h"

enum { MAX_GRID = 4 }; // axes

typedef struct Grid {
  Import *im;
  Devices *all;
  Vec(int64_t) stages; // of the model, ascending
  int *place;          // group of devices of each stage, from 0
  int n_stages;        // groups of devices, some of which may have no node
  int stride;          // from a device to the same one of the next stage
  int inner;           // devices of a stage
  Vec(int) cuts;       // strides of axes, in positions of a stage; ascending once complete
  int n_axes, stage_axis;
  int size[MAX_GRID + 1], step[MAX_GRID + 1]; // outermost first; step: stride in positions
} Grid;

static bool wrong(const Grid *g, const AnnotatedNode *node, const char *text) {
  onnx_problem(g->im, PROBLEM_annotations, node ? node->loc : g->im->file->loc, text, NULL);
  g->all->failed = true;
  return false;
}

// -- Stages ------------------------------------------------------------------------------------

static int upwards(const void *x, const void *y) {
  int64_t a = *(const int64_t *)x, b = *(const int64_t *)y;
  return (a > b) - (a < b);
}

// Returns the index of the model's stage among all stages with nodes, or -1.
static int stage_index(const Grid *g, int64_t stage) {
  // The stages are sorted.
  const int64_t *at =
      g->stages.n ? bsearch(&stage, g->stages.at, (size_t)g->stages.n, sizeof stage, upwards)
                  : NULL;
  return at ? (int)(at - g->stages.at) : -1;
}

static int place_of_device(const Grid *g, int device) {
  return device / g->stride % g->n_stages;
}

static bool lay_stages(Grid *g) {
  int n = g->all->n;
  // The stages of the nodes, ascending, each once.
  int distinct = 0;
  for (int i = 0; i < g->all->nodes.n; i++)
    if (g->all->nodes.at[i]->stage >= 0) vec_push(g->im->a, &g->stages, g->all->nodes.at[i]->stage);
  if (g->stages.n) qsort(g->stages.at, (size_t)g->stages.n, sizeof *g->stages.at, upwards);
  for (int i = 0; i < g->stages.n; i++)
    if (i == 0 || g->stages.at[i] != g->stages.at[distinct - 1])
      g->stages.at[distinct++] = g->stages.at[i];
  g->stages.n = distinct;
  // All stages have as many devices as the first annotated tensor of a node in a stage.
  const Sharding *first = NULL;
  for (int i = 0; i < g->all->nodes.n; i++)
    if (g->all->nodes.at[i]->stage >= 0 && g->all->nodes.at[i]->shardings.n) {
      first = &g->all->nodes.at[i]->shardings.at[0];
      break;
    }
  g->n_stages = first && n % first->n_devices == 0 ? n / first->n_devices : g->stages.n;
  if (!g->n_stages) g->n_stages = 1;
  if (n % g->n_stages != 0 || g->n_stages < g->stages.n)
    return wrong(
        g, NULL,
        str_format(g->im->a, "%d devices cannot be shared out among %d stages", n, g->stages.n));
  g->inner = n / g->n_stages;
  g->stride = g->inner;
  // Devices of a stage are runs of `stride`; the stages alternate between the runs.
  for (int i = 1; first && i < first->n_devices && g->stride == g->inner; i++)
    if (first->device[i] != first->device[i - 1] + 1) g->stride = i;
  if (g->inner % g->stride != 0) g->stride = g->inner; // a later check refuses the tensors
  g->place = arena_array(g->im->a, int, g->stages.n);
  for (int i = 0; i < g->stages.n; i++)
    g->place[i] = -1;
  // A stage is on the devices of its first annotated tensor.
  for (int i = 0; i < g->all->nodes.n; i++) {
    const AnnotatedNode *node = g->all->nodes.at[i];
    int stage = stage_index(g, node->stage);
    if (stage >= 0 && node->shardings.n && g->place[stage] < 0)
      g->place[stage] = place_of_device(g, node->shardings.at[0].device[0]);
  }
  // Stages without annotated tensors are placed by their index, if every group of devices has a
  // stage.
  for (int i = 0; i < g->stages.n; i++) {
    if (g->place[i] >= 0) continue;
    if (g->n_stages != g->stages.n)
      return wrong(g, NULL,
                   str_format(g->im->a,
                              "stage %" PRId64 " has nodes, but none with a tensor that says on "
                              "which devices they are",
                              g->stages.at[i]));
    g->place[i] = i;
  }
  return true;
}

// Returns the group of devices that the node runs on; -1: it is in no stage.
static int place_of_node(const Grid *g, const AnnotatedNode *node) {
  int stage = stage_index(g, node->stage);
  return stage < 0 ? -1 : g->place[stage];
}

// Whether the tensor is on all devices of its stage: then device[i] has position i.
static bool check_devices(const Grid *g, const AnnotatedNode *node, const Sharding *s) {
  int place = g->n_stages > 1 ? place_of_node(g, node) : 0;
  // Devices of a node without a stage are ambiguous if there are several.
  if (place < 0)
    return wrong(g, node,
                 str_format(g->im->a,
                            "'%s' is on devices, but the node is in none of the %d stages",
                            s->tensor, g->n_stages));
  // As many devices as the stage has, and all of them its own.
  bool fits = s->n_devices == g->inner;
  for (int i = 0; i < s->n_devices; i++)
    fits = fits && place_of_device(g, s->device[i]) == place;
  if (fits) return true;
  if (g->n_stages == 1)
    return wrong(g, node,
                 str_format(g->im->a, "'%s' is on %d of %d devices; only stages may be on some",
                            s->tensor, s->n_devices, g->all->n));
  return wrong(g, node,
               str_format(g->im->a,
                          "'%s' is not on the devices of stage %" PRId64 ", which are %d of %d",
                          s->tensor, node->stage, g->inner, g->all->n));
}

// -- Axes --------------------------------------------------------------------------------------

// Returns the part of its i-th sharded dimension at a position.
static int part_at(const Sharding *s, int i, int place) {
  int shard = s->shard[place];
  for (int k = s->n_cuts - 1; k > i; k--)
    shard /= s->cut[k].parts;
  return shard % s->cut[i].parts;
}

static void add_cut(Grid *g, int at) {
  for (int i = 0; i < g->cuts.n; i++)
    if (g->cuts.at[i] == at) return;
  vec_push(g->im->a, &g->cuts, at);
}

// Adds the strides of axes that this dimension implies.
static bool find_cuts(Grid *g, const Sharding *s, int i) {
  int first = part_at(s, i, 0), step = 1;
  while (step < g->inner) {
    // Axes that do not split the dimension: the part stays the same.
    int n = 1;
    while (n < g->inner / step && part_at(s, i, n * step) == first)
      n++;
    step *= n;
    if (g->inner % step != 0) return false;
    add_cut(g, step);
    if (step == g->inner) break;
    // Axes that split it: the part increases evenly.
    int more = part_at(s, i, step) - first;
    for (n = 2; n < g->inner / step && part_at(s, i, n * step) == first + n * more;)
      n++;
    step *= n;
    if (g->inner % step != 0) return false;
    add_cut(g, step);
  }
  return true;
}

static int by_size(const void *x, const void *y) {
  return *(const int *)x - *(const int *)y;
}

static void add_axis(Grid *g, int size, int step) {
  if (g->n_axes <= MAX_GRID) {
    g->size[g->n_axes] = size;
    g->step[g->n_axes] = step;
  }
  g->n_axes++;
}

static bool make_axes(Grid *g) {
  // The whole grid, and the boundaries of stages, are strides as well.
  add_cut(g, 1);
  add_cut(g, g->stride);
  add_cut(g, g->inner);
  qsort(g->cuts.at, (size_t)g->cuts.n, sizeof *g->cuts.at, by_size);
  g->stage_axis = -1;
  for (int i = g->cuts.n - 1; i >= 0; i--) {
    int at = g->cuts.at[i];
    if (i + 1 < g->cuts.n && g->cuts.at[i + 1] % at != 0)
      return wrong(g, NULL, "the annotations split the devices into factors that are not one grid");
    // An axis between each two strides, outermost first.
    if (i + 1 < g->cuts.n) add_axis(g, g->cuts.at[i + 1] / at, at);
    // The axis of stages is between the axes of one stage.
    if (at != g->stride || g->n_stages == 1) continue;
    g->stage_axis = g->n_axes;
    add_axis(g, g->n_stages, 0);
  }
  if (g->n_axes <= MAX_GRID) return true;
  return wrong(g, NULL,
               str_format(g->im->a, "the annotations make a grid of %d axes; there can be %d",
                          g->n_axes, MAX_GRID));
}

// Sets, in `axis`, the axes that split the i-th of its sharded dimensions.
static bool find_axes(const Grid *g, const Sharding *s, int i, Sbp *axis) {
  int parts = 1;
  for (int a = g->n_axes - 1; a >= 0; a--) {
    // From the innermost axis on: each one that splits has the product of those inside it.
    if (a == g->stage_axis || part_at(s, i, g->step[a]) == 0) continue;
    if (part_at(s, i, g->step[a]) != parts || axis[a].kind == SBP_S) return false;
    axis[a] = (Sbp){SBP_S, s->cut[i].dim};
    parts *= g->size[a];
  }
  // Every position must have the part that these axes give it.
  for (int place = 0; place < g->inner; place++) {
    int expect = 0, worth = 1;
    for (int a = g->n_axes - 1; a >= 0; a--) {
      if (axis[a].kind != SBP_S || axis[a].dim != s->cut[i].dim) continue;
      expect += place / g->step[a] % g->size[a] * worth;
      worth *= g->size[a];
    }
    if (part_at(s, i, place) != expect) return false;
  }
  return parts == s->cut[i].parts;
}

// -- The result --------------------------------------------------------------------------------

static bool not_a_grid(const Grid *g, const AnnotatedNode *node, const Sharding *s) {
  return wrong(g, node,
               str_format(g->im->a,
                          "the shards of '%s' do not follow the order of the devices as a grid",
                          s->tensor));
}

static void lay_tensors(const Grid *g, const AnnotatedNode *node, Annotation *to, bool result) {
  for (int i = 0; i < node->shardings.n; i++) {
    const Sharding *s = &node->shardings.at[i];
    if (s->result != result || !s->value) continue;
    AnnotatedValue *out = &to->value[to->n_values++];
    *out = (AnnotatedValue){.name = s->value, .result = s->result};
    // Each sharded dimension takes the axes that split it.
    bool fits = true;
    for (int k = 0; fits && k < s->n_cuts; k++)
      fits = s->cut[k].parts <= 1 || find_axes(g, s, k, out->axis);
    if (!fits) not_a_grid(g, node, s);
  }
}

bool onnx_grid(Import *im, Devices *devices) {
  Grid g = {.im = im, .all = devices};
  Arena *a = im->m->arena;
  if (!lay_stages(&g)) return false;
  // Each annotated tensor adds the strides of the axes that its shards imply.
  for (int i = 0; i < devices->nodes.n; i++) {
    const AnnotatedNode *node = devices->nodes.at[i];
    for (int k = 0; k < node->shardings.n; k++) {
      const Sharding *s = &node->shardings.at[k];
      bool fits = check_devices(&g, node, s);
      for (int c = 0; fits && c < s->n_cuts; c++)
        if (s->cut[c].parts > 1 && !find_cuts(&g, s, c)) fits = not_a_grid(&g, node, s);
    }
  }
  if (devices->failed || !make_axes(&g)) return false;
  Annotations *all = arena_one(a, Annotations);
  all->name = devices->configuration;
  all->n_axes = g.n_axes;
  // Annotations do not name axes, so these get names here.
  all->stages = g.stage_axis;
  for (int i = 0, n = 0; i < g.n_axes; i++)
    all->axis[i] =
        (MeshAxis){i == g.stage_axis ? "pp" : str_format(a, "d%d", n++), g.size[i], false};
  // Each node has one annotation, with its operands before its results.
  for (int i = 0; i < devices->nodes.n; i++) {
    const AnnotatedNode *node = devices->nodes.at[i];
    Annotation *one = arena_one(a, Annotation);
    one->node = node->loc->node;
    one->stage = g.stage_axis < 0 ? -1 : place_of_node(&g, node);
    one->value = arena_array(a, AnnotatedValue, node->shardings.n);
    lay_tensors(&g, node, one, false);
    lay_tensors(&g, node, one, true);
    annotations_add(all, one);
  }
  if (devices->failed) return false;
  im->m->annotations = all;
  return true;
}
