// See mesh.h.

#include "mesh.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_DEVICES = 1 << 20 };

static bool parse_size(const char *text, size_t n, int *out) {
  char digits[16];
  if (n == 0 || n >= sizeof digits || strspn(text, "0123456789") < n) return false;
  memcpy(digits, text, n);
  digits[n] = 0;
  long size = strtol(digits, NULL, 10);
  *out = (int)size;
  return size >= 1 && size <= MAX_DEVICES;
}

// axis = [name ":"] size [":time"]
static bool parse_axis(Module *m, Mesh *mesh, const char *text, size_t n, Diag *d) {
  const char *colon = memchr(text, ':', n), *name = "dp";
  size_t name_n = colon ? (size_t)(colon - text) : 0;
  const char *size = colon ? colon + 1 : text;
  size_t size_n = n - (size_t)(size - text);
  bool time = size_n > 5 && !strncmp(size + size_n - 5, ":time", 5);
  if (time) size_n -= 5;
  if (name_n) name = str_copy_n(m->arena, text, name_n);
  int parts;
  if (!parse_size(size, size_n, &parts)) {
    diag_error(d, NULL, "'%.*s' is not a mesh axis", (int)n, text);
    diag_hint(d, "an axis is NAME:SIZE or NAME:SIZE:time, as in dp:4 or acc:2:time+dp:4");
    return false;
  }
  if (parts == 1) return true;
  if (mesh->n_axes == MAX_AXES) return diag_error(d, NULL, "a mesh has at most %d axes", MAX_AXES);
  for (int a = 0; a < mesh->n_axes; a++)
    if (str_equal(mesh->axis[a].name, name))
      return diag_error(d, NULL, "mesh axis '%s' is there twice", name);
  mesh->axis[mesh->n_axes].name = name;
  mesh->axis[mesh->n_axes].size = parts;
  mesh->axis[mesh->n_axes++].time = time;
  if (!time) mesh->n_devices *= parts;
  return mesh->n_devices <= MAX_DEVICES ||
         diag_error(d, NULL, "a mesh has at most %d devices", MAX_DEVICES);
}

const Mesh *mesh_parse(Module *m, const char *text, Diag *d) {
  Mesh *mesh = arena_one(m->arena, Mesh);
  mesh->name = "m";
  mesh->n_devices = 1;
  for (const char *p = text;;) {
    size_t n = strcspn(p, "+");
    if (!parse_axis(m, mesh, p, n, d)) return NULL;
    if (!p[n]) break;
    p += n + 1;
  }
  mesh->device = arena_array(m->arena, int, mesh->n_devices);
  for (int i = 0; i < mesh->n_devices; i++)
    mesh->device[i] = i;
  return mesh;
}
