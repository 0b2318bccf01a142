// Plans for cuDNN graphs: choosing an engine, loading an ahead-of-time plan, running. See dnn.h for
// the choice, cudnn_plans.h for ahead-of-time plans.

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cudnn_plans.h"
#include "dnn_graph.h"
#include "runtime.h"

enum { MAX_NOTES = 16 };

struct DnnPlan {
  Descriptor plan;
  int64_t workspace;
  int64_t memory[MAX_TENSORS];
  int n_memory;
  Number number[MAX_TENSORS];
  int n_numbers;
};

static _Thread_local char chosen[128];

// -- Choosing

// Sets the target of a graph or plan: this rank's handle, or the device that is planned for.
static void set_machine(DnnGraph *g, Descriptor d, Descriptor device,
                        cudnnBackendAttributeName_t by_handle,
                        cudnnBackendAttributeName_t by_device) {
  if (device) {
    dnn_set_descriptor(g, d, by_device, device);
    return;
  }
  cudnnHandle_t h = nnrt_gpu_dnn();
  if (!h) g->failed = true;
  dnn_set(g, d, by_handle, CUDNN_TYPE_HANDLE, 1, &h);
}

// Makes a descriptor survive the graph.
static Descriptor keep(DnnGraph *g, Descriptor d) {
  for (int i = 0; i < g->n_made; i++)
    if (g->made[i] == d) g->made[i] = g->made[--g->n_made];
  return d;
}

static int64_t int_of(Descriptor d, cudnnBackendAttributeName_t name) {
  int64_t x = 0, n = 0;
  if (cudnnBackendGetAttribute(d, name, CUDNN_TYPE_INT64, 1, &n, &x) != CUDNN_STATUS_SUCCESS)
    return -1;
  return x;
}

static bool fits(DnnGraph *g, Descriptor config, const DnnLimits *limits, int64_t *out_engine) {
  Descriptor engine = dnn_make(g, CUDNN_BACKEND_ENGINE_DESCRIPTOR);
  cudnnBackendNumericalNote_t note[MAX_NOTES];
  int64_t n = 0;
  if (g->failed) return false;
  // The engine of the configuration, and its notes.
  dnn_check(g,
            cudnnBackendGetAttribute(config, CUDNN_ATTR_ENGINECFG_ENGINE,
                                     CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &n, &engine),
            "asking for the engine");
  dnn_check(g,
            cudnnBackendGetAttribute(engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE,
                                     CUDNN_TYPE_NUMERICAL_NOTE, MAX_NOTES, &n, note),
            "asking for notes");
  if (g->failed) return false;
  *out_engine = int_of(engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX);
  // Engines excluded by number, since their notes are incomplete.
  uint64_t out = g->distrusted | (limits->no_tensor_cores ? g->rounding : 0);
  if (*out_engine >= 0 && *out_engine < 64 && out >> *out_engine & 1) return false;
  // Engines that are not deterministic, or less precise than the types promise.
  for (int64_t i = 0; i < n; i++)
    if (note[i] == CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC ||
        note[i] == CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS ||
        note[i] == CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION ||
        note[i] == CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_13x13 ||
        (limits->no_tensor_cores && note[i] == CUDNN_NUMERICAL_NOTE_TENSOR_CORE))
      return false;
  return true;
}

// Returns the first engine proposed by `mode` that builds a plan within the limits, or NULL.  The
// failure of one engine is no error.
static Descriptor plan_by(DnnGraph *g, cudnnBackendHeurMode_t mode, Descriptor graph,
                          Descriptor device, const DnnLimits *limits) {
  Descriptor heuristics = dnn_make(g, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR), plan = NULL;
  int64_t n = 0;
  dnn_set(g, heuristics, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
  dnn_set_descriptor(g, heuristics, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph);
  if (device) dnn_set_descriptor(g, heuristics, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, device);
  dnn_finalize(g, heuristics);
  if (!g->failed)
    dnn_check(g,
              cudnnBackendGetAttribute(heuristics, CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                       CUDNN_TYPE_BACKEND_DESCRIPTOR, 0, &n, NULL),
              "counting engines");
  if (g->failed || n == 0) return NULL;
  // All proposals, best first.
  Descriptor *config = nnrt_must_alloc((size_t)n * sizeof *config);
  for (int64_t i = 0; i < n; i++)
    dnn_check(g, cudnnBackendCreateDescriptor(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, &config[i]),
              "making a descriptor");
  int64_t got = 0;
  if (!g->failed)
    dnn_check(g,
              cudnnBackendGetAttribute(heuristics, CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                       CUDNN_TYPE_BACKEND_DESCRIPTOR, n, &got, config),
              "asking for engines");
  // An engine may refuse when its plan is built.
  for (int64_t i = 0; !plan && !g->failed && i < got; i++) {
    int since = g->n_made;
    int64_t engine = -1;
    if (fits(g, config[i], limits, &engine)) {
      Descriptor d = dnn_make(g, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
      set_machine(g, d, device, CUDNN_ATTR_EXECUTION_PLAN_HANDLE,
                  CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP);
      dnn_set_descriptor(g, d, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config[i]);
      int64_t workspace = -1;
      if (!g->failed && cudnnBackendFinalize(d) == CUDNN_STATUS_SUCCESS)
        workspace = int_of(d, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE);
      if (workspace >= 0 && workspace <= limits->workspace) {
        snprintf(chosen, sizeof chosen, "engine %lld, %lld of %lld, heuristics %s, workspace %lld",
                 (long long)engine, (long long)i + 1, (long long)got,
                 mode == CUDNN_HEUR_MODE_FALLBACK ? "fallback" : "A", (long long)workspace);
        plan = keep(g, d);
      }
    }
    // The descriptors of this engine are not needed any more.
    while (g->n_made > since)
      cudnnBackendDestroyDescriptor(g->made[--g->n_made]);
  }
  for (int64_t i = 0; i < n; i++)
    if (config[i]) cudnnBackendDestroyDescriptor(config[i]);
  free(config);
  return plan;
}

static Descriptor build_plan(DnnGraph *g, Descriptor device, const DnnLimits *limits) {
  Descriptor graph = dnn_make(g, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR), plan = NULL;
  // Device-less, the graph has no target; heuristics and plan do.
  if (!device) {
    cudnnHandle_t h = nnrt_gpu_dnn();
    if (!h) g->failed = true;
    dnn_set(g, graph, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &h);
  }
  dnn_set(g, graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, g->n_ops, g->op);
  dnn_finalize(g, graph);
  if (g->failed) return NULL;
  plan = plan_by(g, CUDNN_HEUR_MODE_A, graph, device, limits);
  // Heuristics that do not know the graph are no reason to give up.
  if (!plan) {
    g->failed = false;
    plan = plan_by(g, CUDNN_HEUR_MODE_FALLBACK, graph, device, limits);
  }
  if (!plan && !g->failed) dnn_fail(g, "cudnn has no engine for it");
  return plan;
}

// -- Ahead-of-time plans

static Descriptor load_plan(DnnGraph *g, Descriptor device, const char *json, int64_t bytes) {
  // cuDNN takes only texts of its own version for this kind of GPU.
  Descriptor d = dnn_make(g, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
  set_machine(g, d, device, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP);
  dnn_set(g, d, CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION, CUDNN_TYPE_CHAR, bytes, json);
  dnn_finalize(g, d);
  if (!g->failed) return keep(g, d);
  g->failed = false; // it can still be built
  return NULL;
}

// Only engines that are compiled for a graph have a text; the others are quick to build.
static void remember(const char *key, Descriptor plan) {
  int64_t n = 0;
  if (cudnnBackendGetAttribute(plan, CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION, CUDNN_TYPE_CHAR,
                               0, &n, NULL) != CUDNN_STATUS_SUCCESS ||
      n <= 0)
    return;
  // The first call gives the length, the second the text.
  char *json = nnrt_must_alloc((size_t)n + 1);
  if (cudnnBackendGetAttribute(plan, CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION, CUDNN_TYPE_CHAR,
                               n, &n, json) == CUDNN_STATUS_SUCCESS)
    nnrt_plans_add(key, json, n);
  free(json);
}

// -- Lifetime of a plan

DnnPlan *dnn_plan(DnnGraph *g, const DnnLimits *limits) {
  DnnPlan *p = nnrt_must_alloc(sizeof *p);
  char key[64];
  chosen[0] = 0;
  dnn_say(g, "limits %lld %d\n", (long long)limits->workspace, (int)limits->no_tensor_cores);
  snprintf(key, sizeof key, "%s-%016llx", g->name,
           (unsigned long long)nnrt_xxh64(g->text, (int64_t)g->text_bytes, 0));
  // Without a GPU a plan is made for the properties of one.
  Descriptor device = NULL;
  const char *properties = nnrt_gpu()->planning;
  if (properties) {
    device = dnn_make(g, CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
    dnn_set(g, device, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR,
            (int64_t)strlen(properties), properties);
    dnn_finalize(g, device);
  }
  if (!g->failed) {
    // One at a time: ranks of one process build the same plans, and later ranks find the first
    // one's.
    nnrt_plans_lock();
    int64_t bytes = 0;
    const char *json = nnrt_plans_find(key, &bytes);
    if (json) p->plan = load_plan(g, device, json, bytes);
    // The plan outlives the graph, so the tensors and numbers of a run are copied.
    if (p->plan) {
      snprintf(chosen, sizeof chosen, "from its text");
    } else {
      double from = nnrt_now_us();
      p->plan = build_plan(g, device, limits);
      if (p->plan && !json) remember(key, p->plan);
      if (p->plan) nnrt_plans_built((nnrt_now_us() - from) / 1e6, json != NULL);
    }
    nnrt_plans_unlock();
  }
  if (p->plan) {
    p->workspace = int_of(p->plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE);
    memcpy(p->memory, g->memory, sizeof p->memory);
    memcpy(p->number, g->number, sizeof p->number);
    p->n_memory = g->n_memory;
    p->n_numbers = g->n_numbers;
  } else {
    free(p);
    p = NULL;
  }
  dnn_graph_free(g);
  return p;
}

void dnn_plan_free(DnnPlan *p) {
  if (!p) return;
  cudnnBackendDestroyDescriptor(p->plan);
  free(p);
}

int64_t dnn_plan_workspace(const DnnPlan *p) {
  return p->workspace;
}

const char *dnn_plan_chosen(void) {
  return chosen;
}

int dnn_run(const DnnPlan *p, void *const *data, void *workspace) {
  int64_t uid[MAX_TENSORS];
  const void *at[MAX_TENSORS];
  int n = 0;
  // Addresses by uid: of the tensors, then of the numbers.
  for (int i = 0; i < p->n_memory; i++, n++) {
    uid[n] = p->memory[i];
    at[n] = data[i];
  }
  for (int i = 0; i < p->n_numbers; i++, n++) {
    uid[n] = p->number[i].uid;
    at[n] = &p->number[i].x;
  }
  cudnnHandle_t h = nnrt_gpu_dnn();
  if (!h) return NNRT_LIBRARY;
  Descriptor d = NULL;
  int code = dnn_ok(cudnnBackendCreateDescriptor(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, &d),
                    "making a descriptor");
  if (code) return code;
  // The variant pack binds tensors and numbers to their uids.
  cudnnStatus_t s =
      cudnnBackendSetAttribute(d, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, n, uid);
  if (!s)
    s = cudnnBackendSetAttribute(d, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, n,
                                 at);
  if (!s)
    s = cudnnBackendSetAttribute(d, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1,
                                 &workspace);
  if (!s) s = cudnnBackendFinalize(d);
  if (!s) s = cudnnBackendExecute(h, p->plan, d);
  code = dnn_ok(s, "running a plan");
  cudnnBackendDestroyDescriptor(d);
  return code;
}
