// --describe: describes this executable as one JSON object.

#include <inttypes.h>
#include <link.h>
#include <stdlib.h>
#include <string.h>

#include "device.h"

static void write_tensors(FILE *f, const NnrtGraph *g, NnrtRole role) {
  bool first = true;
  fputc('[', f);
  for (int i = 0; i < g->n_tensors; i++) {
    const NnrtTensor *t = &g->tensors[i];
    if (t->role != role) continue;
    fputs(first ? "\n    {\"name\": " : ",\n    {\"name\": ", f);
    first = false;
    nnrt_json_write_string(f, t->name);
    fprintf(f, ", \"dtype\": \"%s\", \"shape\": [", nnrt_dtype_name(t->dtype));
    // Users see the dimensions of the model.
    const int64_t *dim;
    int ndim = nnrt_tensor_known(t, &dim);
    for (int d = 0; d < ndim; d++)
      fprintf(f, d ? ", %lld" : "%lld", (long long)dim[d]);
    fputs("]}", f);
  }
  fputs(first ? "]" : "\n  ]", f);
}

static void write_axes(FILE *f, const NnrtMesh *m) {
  fputc('{', f);
  for (int a = 0; a < m->n_axes; a++) {
    fputs(a ? ", " : "", f);
    nnrt_json_write_string(f, m->axis[a].name);
    fprintf(f, ": %d", m->axis[a].size);
  }
  fputc('}', f);
}

// "mesh" has the axes if there is one mesh; "meshes" has axes and ranks of each of several.
static void write_meshes(FILE *f, const NnrtProgram *p) {
  fprintf(f, ",\n  \"%s\": ", p->n_mesh == 1 ? "mesh" : "meshes");
  if (p->n_mesh == 1) {
    write_axes(f, p->mesh);
    return;
  }
  // Meshes of stages differ in their ranks.
  for (int i = 0; i < p->n_mesh; i++) {
    const NnrtMesh *m = &p->mesh[i];
    fputs(i ? ",\n    " : "{\n    ", f);
    nnrt_json_write_string(f, m->name);
    fputs(": {\"axes\": ", f);
    write_axes(f, m);
    fputs(", \"ranks\": [", f);
    for (int k = 0; k < m->n_ranks; k++)
      fprintf(f, k ? ", %d" : "%d", m->rank[k]);
    fputs("]}", f);
  }
  fputs("\n  }", f);
}

typedef struct Libraries {
  FILE *out;
  int n;
} Libraries;

static int write_library(struct dl_phdr_info *info, size_t size, void *arg) {
  Libraries *l = arg;
  (void)size;
  // The first has no name: it is this program.  The kernel's vDSO has no file.
  if (!info->dlpi_name[0] || strncmp(info->dlpi_name, "linux-", 6) == 0) return 0;
  fputs(l->n++ ? ", " : "", l->out);
  nnrt_json_write_string(l->out, info->dlpi_name);
  return 0;
}

// The fingerprints of the proof.
static void write_proof(FILE *f, const NnrtProof *proof) {
  const struct {
    const char *name;
    uint64_t fingerprint;
  } of[] = {{"model", proof->model}, {"plan", proof->plan}, {"program", proof->program}};
  int n = 0;
  fputs(",\n  \"proved\": {", f);
  for (size_t i = 0; i < sizeof of / sizeof *of; i++)
    if (of[i].fingerprint)
      fprintf(f, "%s\"%s\": \"%016" PRIx64 "\"", n++ ? ", " : "", of[i].name, of[i].fingerprint);
  fputc('}', f);
}

void nnrt_describe(const NnrtProgram *p, const Flags *flags, FILE *f) {
  int64_t parameters = 0, trained = 0, slab = 0, host = 0;
  // Weights that are not trained count as parameters only.
  for (int i = 0; i < p->train.n_tensors; i++) {
    const NnrtTensor *t = &p->train.tensors[i];
    if (t->role != NNRT_weight) continue;
    parameters += nnrt_tensor_known_count(t);
    if (t->train) trained += nnrt_tensor_known_count(t);
  }
  // The rank that needs the most memory counts.
  for (int i = 0; i < p->n_codes; i++) {
    if (p->code[i].slab_bytes > slab) slab = p->code[i].slab_bytes;
    if (p->code[i].host_bytes > host) host = p->code[i].host_bytes;
  }
  fputs("{\n  \"model\": ", f);
  nnrt_json_write_string(f, p->model);
  fputs(",\n  \"plan\": ", f);
  nnrt_json_write_string(f, p->plan);
  fprintf(f, ",\n  \"ranks\": %d", p->ranks);
  write_meshes(f, p);
  fprintf(f, ",\n  \"micro_batches\": %d,\n  \"batch\": %lld,\n  \"target\": ", p->micro_batches,
          (long long)p->batch);
  nnrt_json_write_string(f, p->target);
  fputs(",\n  \"version\": ", f);
  nnrt_json_write_string(f, p->version);
  fputs(",\n  \"inputs\": ", f);
  write_tensors(f, &p->train, NNRT_input);
  fputs(",\n  \"outputs\": ", f);
  write_tensors(f, &p->train, NNRT_output);
  fprintf(f,
          ",\n  \"parameters\": %lld,\n  \"trained_parameters\": %lld,\n  \"bytes_per_rank\": %lld",
          (long long)parameters, (long long)trained, (long long)slab);
  if (host > 0) fprintf(f, ",\n  \"host_bytes_per_rank\": %lld", (long long)host);
  fprintf(f, ",\n  \"lr\": %.9g,\n  \"lr_schedule\": ", p->lr);
  nnrt_json_write_string(f, p->lr_schedule);
  fprintf(f, ",\n  \"seed\": %lld,\n  \"evaluates\": %s,\n  \"exports\": %s,\n  \"libraries\": [",
          (long long)p->seed, p->eval.n_tensors ? "true" : "false",
          p->skeleton_bytes ? "true" : "false");
  // The device first: it loads libraries that are found at run time.
  char *device = NULL;
  size_t device_bytes;
  FILE *text = open_memstream(&device, &device_bytes);
  if (!text) nnrt_must_alloc((size_t)-1); // reports the lack of memory
  nnrt_device_describe(p, flags, text);
  nnrt_must_close(text, &device);
  dl_iterate_phdr(write_library, &(Libraries){f, 0});
  fprintf(f, "]%s", device);
  free(device);
  write_proof(f, &p->proof);
  // The compiler's part: the members of an object.
  const char *rest = p->describe ? strchr(p->describe, '{') : NULL;
  const char *end = rest ? strrchr(rest, '}') : NULL;
  if (end && strspn(rest + 1, " \n\t") < (size_t)(end - rest - 1))
    fprintf(f, ",\n  %.*s", (int)(end - rest - 1), rest + 1);
  fputs("\n}\n", f);
}
