// The meshes of a module.

#include <stdlib.h>
#include <string.h>

#include "ir/graph.h"

static int compare_ints(const void *a, const void *b) {
  int x = *(const int *)a, y = *(const int *)b;
  return (x > y) - (x < y);
}

// The devices in ascending order: the list itself, if it is.
static const int *sorted_devices(Arena *a, const Mesh *mesh) {
  int at = 1;
  while (at < mesh->n_devices && mesh->device[at - 1] < mesh->device[at])
    at++;
  if (at >= mesh->n_devices) return mesh->device;
  int *sorted = arena_copy(a, mesh->device, sizeof *sorted * (size_t)mesh->n_devices);
  qsort(sorted, (size_t)mesh->n_devices, sizeof *sorted, compare_ints);
  return sorted;
}

void module_add_mesh(Module *m, Mesh *mesh) {
  if (module_find_mesh(m, mesh->name)) BUG("a second mesh @%s", mesh->name);
  Mesh **end = &m->meshes;
  mesh->id = 0;
  // The id is the position in the list.
  for (; *end; end = &(*end)->next)
    mesh->id++;
  mesh->next = NULL;
  mesh->sorted = sorted_devices(m->arena, mesh);
  *end = mesh;
}

int module_n_meshes(const Module *m) {
  int n = 0;
  for_each_mesh(mesh, m)
    n++;
  return n;
}

void module_drop_meshes(Module *m) {
  Arena *a = arena_new();
  bool *used = arena_array(a, bool, module_n_meshes(m) + 1);
  // The first mesh stays, even if it is unused.
  used[0] = true;
  for_each_graph(g, m) {
    for (int i = 0; i < g->n_params; i++)
      if (g->params[i]->layout && g->params[i]->layout->mesh)
        used[g->params[i]->layout->mesh->id] = true;
    for_each_op(op, g)
      for (int i = 0; i < op->n_out; i++)
        if (op->out[i]->layout && op->out[i]->layout->mesh)
          used[op->out[i]->layout->mesh->id] = true;
  }
  // Unlinks unused meshes and renumbers the others.
  int n = 0;
  for (Mesh **at = &m->meshes; *at;) {
    if (!used[(*at)->id]) {
      *at = (*at)->next;
      continue;
    }
    (*at)->id = n++;
    at = &(*at)->next;
  }
  arena_free(a);
}

bool mesh_is_alike(const Mesh *a, const Mesh *b) {
  if (a->n_axes != b->n_axes || a->n_devices != b->n_devices) return false;
  for (int i = 0; i < a->n_axes; i++)
    if (a->axis[i].size != b->axis[i].size || a->axis[i].time != b->axis[i].time) return false;
  return !memcmp(a->device, b->device, sizeof *a->device * (size_t)a->n_devices);
}

const Mesh *module_find_alike(const Module *m, const Mesh *mesh) {
  for_each_mesh(known, m)
    if (mesh_is_alike(known, mesh)) return known;
  return NULL;
}

const Mesh *module_find_mesh(const Module *m, const char *name) {
  for_each_mesh(mesh, m)
    if (str_equal(mesh->name, name)) return mesh;
  return NULL;
}

// The slices of the time axis; all meshes that have one have the same.
int module_slices(const Module *m) {
  for_each_mesh(mesh, m) {
    for (int i = 0; i < mesh->n_axes; i++)
      if (mesh->axis[i].time) return mesh->axis[i].size;
  }
  return 1;
}

// Adds a device to a hash set of `mask + 1` slots, more than it will have devices. A slot holds the
// device plus one. Returns whether it is new.
static bool add_device(unsigned *set, unsigned mask, int device) {
  unsigned slot = (unsigned)device * 2654435769u >> 7 & mask;
  for (; set[slot]; slot = (slot + 1) & mask)
    if (set[slot] == (unsigned)device + 1) return false;
  set[slot] = (unsigned)device + 1;
  return true;
}

int *module_devices(const Module *m, Arena *a, int *n) {
  int most = 1;
  for_each_mesh(mesh, m)
    most += mesh->n_devices;
  int *devices = arena_array(a, int, most);
  unsigned slots = 16;
  while (slots < 2 * (unsigned)most)
    slots *= 2;
  Arena *scratch = arena_new();
  unsigned *set = arena_array(scratch, unsigned, slots);
  *n = m->meshes ? 0 : 1;
  for_each_mesh(mesh, m)
    for (int i = 0; i < mesh->n_devices; i++)
      if (add_device(set, slots - 1, mesh->device[i])) devices[(*n)++] = mesh->device[i];
  arena_free(scratch);
  return devices;
}

bool mesh_has(const Mesh *mesh, int device) {
  int n = mesh->n_devices;
  const int *sorted = mesh->sorted;
  if (!sorted) {
    for (int i = 0; i < n; i++)
      if (mesh->device[i] == device) return true;
    return false;
  }
  if (n == 0 || device < sorted[0] || device > sorted[n - 1]) return false;
  // Most meshes are a run of neighbours.
  int at = device - sorted[0];
  if (at < n && sorted[at] == device) return true;
  return bsearch(&device, sorted, (size_t)n, sizeof *sorted, compare_ints);
}

bool mesh_covers(const Mesh *all, const Mesh *mesh) {
  int n = all->n_devices, m = mesh->n_devices;
  if (m > n) return false;
  if (m && all->sorted && mesh->sorted) {
    if (mesh->sorted[0] < all->sorted[0] || mesh->sorted[m - 1] > all->sorted[n - 1]) return false;
    // Most meshes are a run of neighbours.
    if (all->sorted[n - 1] - all->sorted[0] == n - 1) return true;
  }
  for (int i = 0; i < m; i++)
    if (!mesh_has(all, mesh->device[i])) return false;
  return true;
}

bool mesh_shifted(const Mesh *a, const Mesh *b, int *by) {
  if (a->n_devices != b->n_devices || a->n_axes != b->n_axes || !a->n_devices) return false;
  for (int i = 0; i < a->n_axes; i++)
    if (a->axis[i].size != b->axis[i].size || a->axis[i].time != b->axis[i].time) return false;
  *by = b->device[0] - a->device[0];
  for (int i = 1; i < a->n_devices; i++)
    if (b->device[i] - a->device[i] != *by) return false;
  return true;
}

bool mesh_meets(const Mesh *a, const Mesh *b) {
  // Two stages are two runs of devices, and their ends tell.
  if (a->sorted && b->sorted && a->n_devices && b->n_devices)
    if (a->sorted[a->n_devices - 1] < b->sorted[0] || b->sorted[b->n_devices - 1] < a->sorted[0])
      return false;
  for (int i = 0; i < a->n_devices; i++)
    if (mesh_has(b, a->device[i])) return true;
  return false;
}

bool mesh_same_devices(const Mesh *a, const Mesh *b) {
  if (a == b) return true;
  return a->n_devices == b->n_devices && mesh_covers(b, a);
}

bool module_has_stages(const Module *m) {
  for (const Mesh *k = m->meshes; k; k = k->next)
    if (!mesh_same_devices(k, m->meshes)) return true;
  return false;
}

bool mesh_repeats(const Mesh *mesh, int *device) {
  Arena *a = arena_new();
  const int *sorted = sorted_devices(a, mesh);
  bool found = false;
  // In sorted order equal devices are neighbours.
  for (int i = 1; i < mesh->n_devices && !found; i++)
    if (sorted[i] == sorted[i - 1]) {
      *device = sorted[i];
      found = true;
    }
  arena_free(a);
  return found;
}

int mesh_stride(const Mesh *mesh, int axis) {
  int stride = 1;
  for (int a = axis + 1; a < mesh->n_axes; a++)
    if (!mesh->axis[a].time) stride *= mesh->axis[a].size;
  return stride;
}

int mesh_find_axis(const Mesh *mesh, const char *name) {
  for (int i = 0; mesh && i < mesh->n_axes; i++)
    if (str_equal(mesh->axis[i].name, name)) return i;
  return -1;
}

int axes_size(const Mesh *mesh, const MeshAxes *axes) {
  int size = 1;
  for (int i = 0; i < axes->n; i++)
    size *= mesh->axis[axes->at[i]].size;
  return size;
}

bool axes_have(const MeshAxes *axes, int axis) {
  for (int i = 0; i < axes->n; i++)
    if (axes->at[i] == axis) return true;
  return false;
}

const Mesh *op_mesh(const Op *op) {
  for (int i = 0; i < op->n_out; i++)
    if (op->out[i] && op->out[i]->layout) return op->out[i]->layout->mesh;
  for (int i = 0; i < op->n_in; i++)
    if (op->in[i].value->layout) return op->in[i].value->layout->mesh;
  return op->graph->module->meshes;
}

bool module_check_ranks(const Module *m, Diag *d) {
  Arena *a = arena_new();
  int n;
  const int *device = module_devices(m, a, &n);
  bool *there = arena_array(a, bool, n), ok = true;
  for (int i = 0; i < n && m->meshes; i++)
    if (device[i] < n) there[device[i]] = true;
  // A rank that is on no mesh would have nothing to run.
  for (int i = 0; i < n && m->meshes && ok; i++)
    ok = there[i] ||
         diag_error(d, NULL, "ranks are devices 0 to %d of the meshes, and none has %d", n - 1, i);
  arena_free(a);
  return ok;
}
