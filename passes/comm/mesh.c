// Meshes from text: see mesh.h.

#include "mesh.h"

#include <stdlib.h>
#include <string.h>

static bool parse_size(const char *text, size_t n, int *out) {
  char digits[16];
  if (n == 0 || n >= sizeof digits || strspn(text, "0123456789") < n) return false;
  memcpy(digits, text, n);
  digits[n] = 0;
  long size = strtol(digits, NULL, 10);
  *out = (int)size;
  return size >= 1 && size <= MAX_DEVICES;
}

static bool add_axis(Mesh *mesh, const char *name, int parts, bool time, Diag *d) {
  // An axis of one part is none.
  if (parts == 1) return true;
  if (mesh->n_axes == MAX_AXES) return diag_error(d, NULL, "a mesh has at most %d axes", MAX_AXES);
  for (int a = 0; a < mesh->n_axes; a++)
    if (str_equal(mesh->axis[a].name, name))
      return diag_error(d, NULL, "mesh axis '%s' is there twice", name);
  for (int a = 0; a < mesh->n_axes; a++)
    if (time && mesh->axis[a].time)
      return diag_error(d, NULL,
                        "mesh axes '%s' and '%s' are both of time: one is enough, of %d parts",
                        mesh->axis[a].name, name, mesh->axis[a].size * parts);
  mesh->axis[mesh->n_axes].name = name;
  mesh->axis[mesh->n_axes].size = parts;
  mesh->axis[mesh->n_axes++].time = time;
  // Time axes have no devices.
  if (!time && parts > MAX_DEVICES / mesh->n_devices)
    return diag_error(d, NULL, "a mesh has at most %d devices", MAX_DEVICES);
  if (!time) mesh->n_devices *= parts;
  return true;
}

static bool bad_axis(const char *text, size_t n, Diag *d) {
  diag_error(d, NULL, "'%.*s' is not a mesh axis", (int)n, text);
  diag_hint(d, "write dp:4, acc:2:time+dp:4, or sizes alone, as in 2x4");
  return false;
}

// axis = name ":" size [":time"]
static bool parse_named(Module *m, Mesh *mesh, const char *text, size_t n, size_t name_n, Diag *d) {
  const char *size = text + name_n + 1;
  size_t size_n = n - name_n - 1;
  bool time = size_n > 5 && !strncmp(size + size_n - 5, ":time", 5);
  if (time) size_n -= 5;
  int parts;
  if (!name_n || !parse_size(size, size_n, &parts)) return bad_axis(text, n, d);
  return add_axis(mesh, str_copy_n(m->arena, text, name_n), parts, time, d);
}

// unnamed = size {"x" size}
static bool parse_unnamed(Module *m, Mesh *mesh, const char *text, size_t n, int *n_unnamed,
                          Diag *d) {
  for (size_t at = 0; at <= n;) {
    const char *x = memchr(text + at, 'x', n - at);
    size_t size_n = x ? (size_t)(x - text) - at : n - at;
    int parts, i = (*n_unnamed)++;
    if (!parse_size(text + at, size_n, &parts)) return bad_axis(text, n, d);
    const char *name = i == 0 ? "dp" : i == 1 ? "tp" : str_format(m->arena, "a%d", i);
    if (!add_axis(mesh, name, parts, false, d)) return false;
    at += size_n + 1;
  }
  return true;
}

Mesh *mesh_parse(Module *m, const char *text, Diag *d) {
  Mesh *mesh = arena_one(m->arena, Mesh);
  mesh->name = "m";
  mesh->n_devices = 1;
  int n_unnamed = 0;
  // mesh = axis {"+" axis}
  for (const char *p = text;;) {
    size_t n = strcspn(p, "+");
    const char *colon = memchr(p, ':', n);
    if (!(colon ? parse_named(m, mesh, p, n, (size_t)(colon - p), d)
                : parse_unnamed(m, mesh, p, n, &n_unnamed, d)))
      return NULL;
    if (!p[n]) break;
    p += n + 1;
  }
  // All devices in order.
  mesh->device = arena_array(m->arena, int, mesh->n_devices);
  for (int i = 0; i < mesh->n_devices; i++)
    mesh->device[i] = i;
  return mesh;
}
