// The emulated cuDNN: the engines for a graph on a GPU, and plans that run one.
//
// The heuristic proposes some engines, of which the first is not deterministic, and for f32 the
// second has tensor cores that round to TF32.  It proposes none for graphs that cuDNN 9.19 refuses:
// attention other than of 16 bits and heads of a multiple of 8, gradients of weights of another
// type than the activations.
//
// A plan has a text from which it can be rebuilt, on the same GPU only: descriptors as numbers,
// each after its attributes.
//
//     {"emulated":[sm,processors,descriptors,
//     type,attributes,name,type,elements,element,element,…,name,type,…
//     …]}

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cudnn_internal.h"
#include "emulator.h"

// ---- GPUs, and the abilities of their engines

typedef struct Machine {
  int sm, processors;
} Machine;

static int property(const char *text, int64_t n, const char *name) {
  size_t length = strlen(name);
  for (int64_t i = 0; i + (int64_t)length < n; i++)
    if (memcmp(text + i, name, length) == 0) return atoi(text + i + length);
  return 0;
}

static Machine this_machine(void) {
  int major = 0, minor = 0, processors = 0;
  cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0);
  cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, 0);
  cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, 0);
  return (Machine){10 * major + minor, processors};
}

static Machine machine_of(const Descriptor *device) {
  const Attribute *a = device ? find(device, A(DEVICEPROP_JSON_REPRESENTATION)) : NULL;
  if (!a) return this_machine();
  return (Machine){property(a->at, a->n, "\"deviceVer\":") / 10,
                   property(a->at, a->n, "\"multiProcessorCount\":")};
}

static bool has_16_bits(cudnnDataType_t t) {
  return t == CUDNN_DATA_HALF || t == CUDNN_DATA_BFLOAT16;
}

// The reason for which cuDNN 9.19 has no engine for the graph, or NULL.
static const char *not_taken(const Descriptor *g, int sm) {
  const Attribute *ops = find(g, A(OPERATIONGRAPH_OPS));
  int64_t widest = sm / 10 == 9 ? 256 : 128, matmuls = 0;
  for (int64_t i = 0; i < ops->n; i++) {
    const Descriptor *op = ((Descriptor **)ops->at)[i];
    if (op->type == D(OPERATION_MATMUL)) {
      Tensor a = cudnn_operand(op, A(OPERATION_MATMUL_ADESC));
      Tensor b = cudnn_operand(op, A(OPERATION_MATMUL_BDESC));
      matmuls++;
      if (!has_16_bits(a.type)) return "a product's operands are not of 16 bits";
      int64_t d = a.is_virtual ? b.dim[3] : a.dim[3];
      if (d % 8 != 0 || d > widest) return "heads of this width";
      if (a.dim[2] == 1 && b.dim[3] == 1 && ops->n > 16) return "one query and one key";
    }
    if (op->type == D(OPERATION_CONVOLUTION_BACKWARD_FILTER)) {
      Conv c = cudnn_conv_of(op);
      if (c.w.type != c.x.type) return "a gradient of weights of another type";
    }
  }
  return matmuls == 1 ? "a product alone" : NULL;
}

const Descriptor *cudnn_engine_of(const Descriptor *plan) {
  return child(child(plan, A(EXECUTION_PLAN_ENGINE_CONFIG)), A(ENGINECFG_ENGINE));
}

// About the size for the real one: for products of virtual tensors one of them.
int64_t cudnn_workspace_of(const Descriptor *plan) {
  const Attribute *ops =
      find(child(cudnn_engine_of(plan), A(ENGINE_OPERATION_GRAPH)), A(OPERATIONGRAPH_OPS));
  int64_t most = 0;
  for (int64_t i = 0; ops->n > 16 && i < ops->n; i++) {
    const Descriptor *op = ((Descriptor **)ops->at)[i];
    if (op->type != D(OPERATION_MATMUL)) continue;
    Tensor a = cudnn_operand(op, A(OPERATION_MATMUL_ADESC));
    int64_t bytes = a.count / a.dim[2] / a.dim[3] * ((a.dim[2] + 63) / 64 * 64) *
                    ((a.dim[3] + 127) / 128 * 128) * 2;
    if (a.is_virtual && bytes > most) most = bytes;
  }
  return most + 256;
}

// ---- A plan's text

static int place_of(Descriptor *d, Descriptor **list, int *n) {
  for (int i = 0; i < *n; i++)
    if (list[i] == d) return i;
  for (int i = 0; i < d->n; i++) {
    const Attribute *a = &d->attribute[i];
    for (int64_t j = 0; a->type == CUDNN_TYPE_BACKEND_DESCRIPTOR && j < a->n; j++)
      place_of(((Descriptor **)a->at)[j], list, n);
  }
  list[*n] = d;
  return (*n)++;
}

enum { MAX_TEXT_DESCRIPTORS = 512 };

static char *text_of(const Descriptor *plan, size_t *bytes) {
  Descriptor *list[MAX_TEXT_DESCRIPTORS];
  int n = 0;
  Machine m = machine_of(child(plan, A(EXECUTION_PLAN_DEVICEPROP)));
  char *text = NULL;
  FILE *f = open_memstream(&text, bytes);
  place_of(child(plan, A(EXECUTION_PLAN_ENGINE_CONFIG)), list, &n);
  fprintf(f, "{\"emulated\":[%d,%d,%d", m.sm, m.processors, n);
  for (int i = 0; i < n; i++) {
    fprintf(f, ",\n%d,%d", (int)list[i]->type, list[i]->n);
    for (int j = 0; j < list[i]->n; j++) {
      const Attribute *a = &list[i]->attribute[j];
      int64_t size = (int64_t)cudnn_attribute_bytes(a->type);
      bool handle = a->type == CUDNN_TYPE_HANDLE; // valid in this process only
      fprintf(f, ",%d,%d,%" PRId64, (int)a->name, (int)a->type, handle ? 0 : a->n);
      for (int64_t k = 0; k < a->n && !handle; k++) {
        int64_t x = 0;
        if (a->type == CUDNN_TYPE_BACKEND_DESCRIPTOR)
          x = place_of(((Descriptor **)a->at)[k], list, &n);
        else
          memcpy(&x, (const char *)a->at + k * size, (size_t)size);
        fprintf(f, ",%" PRId64, x);
      }
    }
  }
  fprintf(f, "]}");
  fclose(f);
  return text;
}

static bool next(const char **at, const char *end, int64_t *out) {
  while (*at < end && (**at < '0' || **at > '9') && **at != '-')
    (*at)++;
  if (*at == end) return false;
  char digits[32] = "";
  for (int n = 0; *at < end && n < 31 && ((**at >= '0' && **at <= '9') || **at == '-'); n++)
    digits[n] = *(*at)++;
  *out = strtoll(digits, NULL, 10);
  return true;
}

// Returns the engine config of a text, or NULL; `m` is its target.
static Descriptor *config_of_text(const char *at, const char *end, Machine *m) {
  int64_t sm, processors, n, type, count, name, kind, values, x;
  Descriptor *list[MAX_TEXT_DESCRIPTORS];
  if (end - at < 14 || memcmp(at, "{\"emulated\":[", 13) != 0 || !next(&at, end, &sm) ||
      !next(&at, end, &processors) || !next(&at, end, &n) || n < 1 || n > MAX_TEXT_DESCRIPTORS)
    return NULL;
  *m = (Machine){(int)sm, (int)processors};
  int made = 0;
  bool ok = true;
  while (made < n &&
         (ok = next(&at, end, &type) && next(&at, end, &count) && count <= MAX_ATTRIBUTES)) {
    Descriptor *d = list[made] = calloc(1, sizeof *d);
    *d = (Descriptor){.type = (cudnnBackendDescriptorType_t)type, .users = 1, .final = true};
    for (int64_t i = 0; ok && i < count; i++) {
      ok = next(&at, end, &name) && next(&at, end, &kind) && next(&at, end, &values) &&
           values >= 0 && values <= end - at;
      size_t size = ok ? cudnn_attribute_bytes((cudnnBackendAttributeType_t)kind) : 0;
      char *data = ok ? calloc((size_t)values + 1, size) : NULL;
      for (int64_t j = 0; ok && j < values; j++) {
        ok = next(&at, end, &x) && (kind != CUDNN_TYPE_BACKEND_DESCRIPTOR || (x >= 0 && x < made));
        if (!ok) break;
        if (kind == CUDNN_TYPE_BACKEND_DESCRIPTOR)
          memcpy(data + (size_t)j * size, &list[x], size);
        else
          memcpy(data + (size_t)j * size, &x, size);
      }
      if (ok && values > 0)
        cudnn_put(d, (cudnnBackendAttributeName_t)name, (cudnnBackendAttributeType_t)kind, values,
                  data);
      free(data);
    }
    made++;
    if (!ok) break;
  }
  ok = ok && made == n && list[n - 1]->type == D(ENGINECFG);
  Descriptor *config = ok ? list[n - 1] : NULL;
  if (config) config->users++;
  for (int i = made - 1; i >= 0; i--)
    cudnn_let_go(list[i]);
  return config;
}

// ---- Descriptors that are finalized

static cudnnStatus_t check_plan(Descriptor *d) {
  const Attribute *text = find(d, A(EXECUTION_PLAN_JSON_REPRESENTATION));
  Descriptor *device = child(d, A(EXECUTION_PLAN_DEVICEPROP));
  if (!device && !find(d, A(EXECUTION_PLAN_HANDLE))) return BAD("a plan for no gpu");
  Machine here = machine_of(device);
  if (text) {
    Machine m;
    Descriptor *config = config_of_text(text->at, (const char *)text->at + text->n, &m);
    if (!config) return BAD("the text of a plan is damaged");
    cudnn_put(d, A(EXECUTION_PLAN_ENGINE_CONFIG), CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &config);
    cudnn_let_go(config);
    if (m.sm != here.sm || m.processors != here.processors)
      return cudnn_refuse(CUDNN_STATUS_NOT_SUPPORTED, "the text of a plan is for another gpu");
  }
  return child(d, A(EXECUTION_PLAN_ENGINE_CONFIG)) ? CUDNN_STATUS_SUCCESS
                                                   : BAD("a plan has no engine");
}

cudnnStatus_t cudnn_check_plan(Descriptor *d) {
  switch ((int)d->type) {
  case D(ENGINEHEUR):
    if (!child(d, A(ENGINEHEUR_DEVICEPROP)) &&
        !find(child(d, A(ENGINEHEUR_OPERATION_GRAPH)), A(OPERATIONGRAPH_HANDLE)))
      return BAD("heuristics for no gpu");
    break;
  case D(EXECUTION_PLAN): return check_plan(d);
  case D(DEVICEPROP):
    if (machine_of(d).sm <= 0) return BAD("the properties of a gpu are damaged");
    break;
  }
  return CUDNN_STATUS_SUCCESS;
}

// ---- Queries: of heuristics, engines and plans

static bool touches_f32(const Descriptor *graph) {
  const Attribute *ops = find(graph, A(OPERATIONGRAPH_OPS));
  const Descriptor *op = ((Descriptor **)ops->at)[0];
  return op->type != D(OPERATION_MATMUL) && op->type != D(OPERATION_POINTWISE) &&
         cudnn_conv_of(op).x.type == CUDNN_DATA_FLOAT;
}

static bool is_conv_gradient(const Descriptor *engine) {
  const Attribute *ops = find(child(engine, A(ENGINE_OPERATION_GRAPH)), A(OPERATIONGRAPH_OPS));
  const Descriptor *op = ((Descriptor **)ops->at)[0];
  return op->type == D(OPERATION_CONVOLUTION_BACKWARD_DATA) ||
         op->type == D(OPERATION_CONVOLUTION_BACKWARD_FILTER);
}

// The engines for a graph, best first.
static cudnnStatus_t propose(const Descriptor *d, int64_t wanted, int64_t *count, void **out) {
  Descriptor *graph = child(d, A(ENGINEHEUR_OPERATION_GRAPH));
  const char *why = not_taken(graph, machine_of(child(d, A(ENGINEHEUR_DEVICEPROP))).sm);
  int64_t n = touches_f32(graph) ? N_ENGINES : N_ENGINES - 1;
  *count = why ? 0 : n;
  if (why) {
    cudnn_refuse(CUDNN_STATUS_NOT_SUPPORTED, "no engine takes %s", why);
    return CUDNN_STATUS_SUCCESS;
  }
  for (int64_t i = 0; i < wanted && i < n; i++) {
    Descriptor *engine = calloc(1, sizeof *engine), *config = out[i];
    *engine = (Descriptor){.type = D(ENGINE), .users = 1, .final = true};
    cudnn_put(engine, A(ENGINE_OPERATION_GRAPH), CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &graph);
    cudnn_put(engine, A(ENGINE_GLOBAL_INDEX), CUDNN_TYPE_INT64, 1, &i);
    cudnn_put(config, A(ENGINECFG_ENGINE), CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &engine);
    config->final = true;
    cudnn_let_go(engine);
  }
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendGetAttribute(cudnnBackendDescriptor_t descriptor,
                                       cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t wanted,
                                       int64_t *count, void *elements) {
  const Descriptor *d = descriptor;
  int64_t n = 0;
  if (!d->final) return BAD("an attribute of a descriptor is asked for that is not finalized");
  switch ((int)name) {
  case A(ENGINEHEUR_RESULTS): return propose(d, wanted, count, elements);
  case A(ENGINECFG_ENGINE): { // into a descriptor of the caller
    Descriptor *to = *(Descriptor **)elements, *from = child(d, A(ENGINECFG_ENGINE));
    for (int i = 0; i < from->n; i++)
      cudnn_put(to, from->attribute[i].name, from->attribute[i].type, from->attribute[i].n,
                from->attribute[i].at);
    to->final = true;
    n = 1;
    break;
  }
  case A(ENGINE_GLOBAL_INDEX):
    *(int64_t *)elements = number(d, A(ENGINE_GLOBAL_INDEX), 0);
    n = 1;
    break;
  case A(ENGINE_NUMERICAL_NOTE): {
    int64_t engine = number(d, A(ENGINE_GLOBAL_INDEX), 0);
    if (wanted < 1 || type != CUDNN_TYPE_NUMERICAL_NOTE) return BAD("no room for notes");
    // The oldest algorithms of convolution's gradients do not report that their order is unfixed.
    n = engine != ENGINE_plain && !(engine == ENGINE_any_order && is_conv_gradient(d));
    if (n)
      *(cudnnBackendNumericalNote_t *)elements = engine == ENGINE_any_order
                                                     ? CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC
                                                     : CUDNN_NUMERICAL_NOTE_TENSOR_CORE;
    break;
  }
  case A(EXECUTION_PLAN_WORKSPACE_SIZE):
    *(int64_t *)elements = cudnn_workspace_of(d);
    n = 1;
    break;
  case A(EXECUTION_PLAN_JSON_REPRESENTATION): {
    size_t bytes;
    char *text = text_of(d, &bytes);
    n = (int64_t)bytes;
    if (elements) memcpy(elements, text, (size_t)(wanted < n ? wanted : n));
    free(text);
    break;
  }
  default: return cudnn_refuse(CUDNN_STATUS_NOT_SUPPORTED, "asking for attribute %d", (int)name);
  }
  if (count) *count = n;
  return CUDNN_STATUS_SUCCESS;
}
