// Checks the requirements of the executable: a driver, a GPU of a supported architecture,
// libraries, and memory.  The checks run before ranks connect.  Messages are addressed to the
// person who can install the missing part.

#include <cublasLt.h>
#include <cudnn.h>
#include <stdlib.h>
#include <string.h>

#include "collectives.h"
#include "cudnn_plans.h"
#include "machine.h"
#include "products.h"
#include "ranks.h"
#include "tune.h"

// Programs that do not use a library may not be linked with it; programs written by hand may have
// no kernels.cu.
#pragma weak cublasLtGetVersion
#pragma weak cudnnGetVersion
#pragma weak nnrt_program_runs_here

enum { MOST_GPUS = 64 };

static int n_gpus;
static double memory_free[MOST_GPUS]; // before any rank of this process allocates

int nnrt_gpu_of_rank(const NnrtRun *run, int rank) {
  bool alone = run->launch.kind == LAUNCH_none;
  return (alone || run->launch.local_rank < 0 ? rank : run->launch.local_rank) % n_gpus;
}

bool nnrt_device_special_run(const NnrtProgram *p, int *out_status) {
  if (!getenv("NNRT_PLAN_DEVICE")) return false;
  *out_status = nnrt_plans_main(p);
  return true;
}

// ---- driver and libraries

static bool find_driver(Why *w) {
  int version = 0;
  cudaError_t e = cudaDriverGetVersion(&version);
  if (e != cudaSuccess || version == 0)
    return why(
        w, "no NVIDIA driver is found on this machine\n"
           "hint: nvidia-smi lists drivers and devices; in a container, it must be started with "
           "gpus");
  // A driver serves all runtimes of its major version.
  if (version / 1000 < CUDART_VERSION / 1000)
    return why(w,
               "the NVIDIA driver is too old: it is for CUDA %d.%d, this executable needs %d.0\n"
               "hint: a newer driver, or compile with an older CUDA",
               version / 1000, version / 10 % 100, CUDART_VERSION / 1000);
  return true;
}

static bool find_gpus(Why *w) {
  cudaError_t e = cudaGetDeviceCount(&n_gpus);
  if (e == cudaErrorNoDevice || (e == cudaSuccess && n_gpus == 0)) {
    // A wrong CUDA_VISIBLE_DEVICES is the usual cause.
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    return why(
        w, "no gpu is found on this machine%s%s%s\nhint: nvidia-smi lists drivers and devices",
        visible ? "; CUDA_VISIBLE_DEVICES is '" : "", visible ? visible : "", visible ? "'" : "");
  }
  if (e != cudaSuccess) return why(w, "the gpus cannot be used: %s", cudaGetErrorString(e));
  if (n_gpus > MOST_GPUS) n_gpus = MOST_GPUS;
  return true;
}

typedef struct Version {
  char text[32];
} Version;

// 91900 of cuDNN 9.19.0, 130100 of cuBLASLt 13.1.0, 22809 of NCCL 2.28.9.
static Version version(size_t n) {
  Version v;
  snprintf(v.text, sizeof v.text, "%zu.%zu.%zu", n / 10000, n / 100 % 100, n % 100);
  return v;
}

static bool new_enough(const char *library, size_t have, size_t need, Why *w) {
  // The interface is stable within a major version.
  if (have >= need && have / 10000 == need / 10000) return true;
  return why(w,
             "%s is too %s: it is %s, this executable was made for %s\n"
             "hint: --describe says which files of libraries are used; LD_LIBRARY_PATH chooses",
             library, have < need ? "old" : "new", version(have).text, version(need).text);
}

static bool check_libraries(Why *w) {
  enum { CUBLAS = CUBLAS_VER_MAJOR * 10000 + CUBLAS_VER_MINOR * 100 };
  enum { CUDNN = CUDNN_MAJOR * 10000 + CUDNN_MINOR * 100 };
  return (!cublasLtGetVersion || new_enough("cuBLASLt", cublasLtGetVersion(), CUBLAS, w)) &&
         (!cudnnGetVersion || new_enough("cuDNN", cudnnGetVersion(), CUDNN, w));
}

// ---- GPUs

static bool check_gpu(const NnrtProgram *p, int index, Why *w) {
  enum { OLDEST = 80 };
  struct cudaDeviceProp gpu;
  cudaError_t e = cudaSetDevice(index);
  if (e == cudaSuccess) e = cudaGetDeviceProperties(&gpu, index);
  if (e != cudaSuccess)
    return why(w, "gpu %d cannot be used: %s\nhint: is it used by another program alone?", index,
               cudaGetErrorString(e));
  int sm = 10 * gpu.major + gpu.minor;
  if (sm < OLDEST)
    return why(w, "gpu %d, %s, is sm_%d; sm_%d is the oldest that can be used", index, gpu.name, sm,
               OLDEST);
  // Library and program must have kernels for the GPU; they may be compiled for different
  // architectures.
  if (nnrt_program_runs_here && !nnrt_program_runs_here())
    return why(w,
               "gpu %d, %s, is sm_%d; this executable was compiled for %s\n"
               "hint: compile with --target cuda:sm_%d",
               index, gpu.name, sm, p->target, sm);
  if (!nnrt_gpu_runs_here())
    return why(
        w,
        "gpu %d, %s, is sm_%d; the runtime in this executable was not compiled for it\n"
        "hint: `tools/setup cuda sm_%d` builds it; an architecture that is not among CMake's "
        "NNAOT_CUDA_ARCHITECTURES has to be added there",
        index, gpu.name, sm, sm);
  // Before any rank of this process allocates.
  size_t available, total;
  e = cudaMemGetInfo(&available, &total);
  if (e != cudaSuccess) return why(w, "gpu %d cannot be used: %s", index, cudaGetErrorString(e));
  memory_free[index] = (double)available;
  return true;
}

// Checks the number of ranks that are threads: one kernel adds the tensors of all.
static bool check_threads(const NnrtProgram *p, Why *w) {
  for (int g = 0; g < p->n_groups; g++) {
    const NnrtMesh *mesh = &p->mesh[p->group[g].mesh];
    char name[256] = "";
    // The name of the group in messages: its axes, "dp+tp".
    int n = nnrt_group_size(p, g);
    for (int i = 0; i < NNRT_MAX_AXES && p->group[g].axis[i] >= 0; i++) {
      const NnrtAxis *axis = &mesh->axis[p->group[g].axis[i]];
      size_t length = strlen(name);
      if (!axis->time)
        snprintf(name + length, sizeof name - length, "%s%s", length ? "+" : "", axis->name);
    }
    if (n > NNRT_MOST_THREADS)
      return why(w,
                 "axis %s has %d ranks, and one process can have %d of one axis\n"
                 "hint: start one process for each rank, as in: mpirun -n %d",
                 name, n, NNRT_MOST_THREADS, p->ranks);
  }
  return true;
}

bool nnrt_device_find(const NnrtRun *run, Why *w) {
  const Flags *f = &run->flags;
  bool alone = run->launch.kind == LAUNCH_none;
  if (f->memory.given) return why(w, "--memory is for processors, and this executable is for gpus");
  if (f->fpmath.given)
    return why(w, "--fpmath is for processors, and this executable is for gpus\n"
                  "hint: --tf32 lets products on gpus round");
  if (alone && !check_threads(run->program, w)) return false;
  if (!find_driver(w) || !find_gpus(w) || !check_libraries(w)) return false;
  // A process checks only the GPUs that its ranks use.
  int ranks = alone ? run->program->ranks : 1;
  for (int i = 0; i < ranks && i < n_gpus; i++)
    if (!check_gpu(run->program, nnrt_gpu_of_rank(run, alone ? i : run->launch.rank), w))
      return false;
  nnrt_gpu_tf32_set(f->tf32.given);
  return nnrt_tune_open(f->tune.given ? f->tune.s : NULL, w);
}

bool nnrt_gpu_memory_enough(int gpu, const Slabs *slabs, Why *w) {
  char what[64];
  snprintf(what, sizeof what, "memory of gpu %d", gpu);
  return nnrt_memory_enough(slabs, memory_free[gpu], what, w);
}

// Processes that share a GPU are not known yet: collectives.c checks their memory.
bool nnrt_device_enough(const NnrtRun *run, int ranks_here, Why *w) {
  bool alone = run->launch.kind == LAUNCH_none;
  int first = alone ? 0 : run->launch.rank, end = alone ? ranks_here : first + 1;
  for (int gpu = 0; gpu < n_gpus; gpu++) {
    Slabs slabs = {0};
    for (int rank = first; rank < end; rank++)
      if (nnrt_gpu_of_rank(run, rank) == gpu)
        nnrt_slabs_add(&slabs, run->program, rank, true, false);
    if (!nnrt_gpu_memory_enough(gpu, &slabs, w)) return false;
  }
  // Offloaded values are pinned in host memory.
  Slabs host = {0};
  for (int rank = first; rank < end; rank++)
    nnrt_slabs_add(&host, run->program, rank, false, true);
  return host.all == 0 || nnrt_memory_enough(&host, nnrt_memory_free(), "memory", w);
}

void nnrt_gpu_say_memory(const NnrtRank *r) {
  size_t available, total;
  int gpu = r->device->gpu.index;
  if (cudaMemGetInfo(&available, &total) != cudaSuccess) return;
  nnrt_say_note("gpu %d: training used %s of %s", gpu,
                nnrt_amount(memory_free[gpu] - (double)available).text,
                nnrt_amount((double)total).text);
}

void nnrt_device_terms(const NnrtRank *r, Terms *t) {
  struct cudaDeviceProp gpu;
  int driver = 0;
  if (cudaGetDeviceProperties(&gpu, r->device->gpu.index) == cudaSuccess)
    nnrt_terms_add(t, "the gpu", "%.255s, sm_%d with %d multiprocessors", gpu.name,
                   10 * gpu.major + gpu.minor, gpu.multiProcessorCount);
  else
    nnrt_terms_add(t, "the gpu", "unknown");
  // The driver compiles PTX for GPUs that are newer than this program.
  if (cudaDriverGetVersion(&driver) != cudaSuccess) driver = 0;
  nnrt_terms_add(t, "the driver", "for CUDA %d.%d", driver / 1000, driver / 10 % 100);
  if (cublasLtGetVersion) nnrt_terms_add(t, "cuBLASLt", "%s", version(cublasLtGetVersion()).text);
  if (cudnnGetVersion) nnrt_terms_add(t, "cuDNN", "%s", version(cudnnGetVersion()).text);
  nnrt_tune_terms(t);
}

void nnrt_device_variables(Terms *t) {
  // cuBLASLt's and cuDNN's precision, and NCCL's order of additions.
  static const char *const names[] = {"NVIDIA_TF32_OVERRIDE", "NCCL_ALGO", "NCCL_PROTO"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    const char *value = getenv(names[i]);
    nnrt_terms_add(t, names[i], "%s", value && *value ? value : "not set");
  }
}

void nnrt_device_describe(const NnrtProgram *p, const Flags *f, FILE *out) {
  (void)f;
  int driver = 0, nccl = p->ranks > 1 ? nnrt_gpu_nccl_version() : 0;
  fprintf(out, ",\n  \"cuda\": {\"runtime\": \"%d.%d\"", CUDART_VERSION / 1000,
          CUDART_VERSION / 10 % 100);
  // A machine without a driver, or a program without a library, has no such entry.
  if (cudaDriverGetVersion(&driver) == cudaSuccess && driver > 0)
    fprintf(out, ", \"driver\": \"%d.%d\"", driver / 1000, driver / 10 % 100);
  if (cublasLtGetVersion)
    fprintf(out, ", \"cublaslt\": \"%s\"", version(cublasLtGetVersion()).text);
  if (cudnnGetVersion) fprintf(out, ", \"cudnn\": \"%s\"", version(cudnnGetVersion()).text);
  if (nccl) fprintf(out, ", \"nccl\": \"%s\"", version((size_t)nccl).text);
  fputs("}", out);
}
