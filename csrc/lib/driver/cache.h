/* The disk cache of compiled programs.
 *
 * One self-describing file per entry, named by the SHA-256 of its key. The key is everything that
 * decides the machine code, so an entry is never stale, only unused. Entries are written to a
 * temporary file, synced and renamed: a reader, in this process or another, sees a whole entry or
 * none. Every fault (no directory, no rights, a full disk, damage) is a miss. */
#ifndef GPR_LIB_CACHE_H
#define GPR_LIB_CACHE_H

#include "lib/base/text.h"
#include "lib/driver/nvrtc.h"

/* Writes the key of a translation, to be compiled for `target`: everything that decides the machine
 * code, as text. NVRTC is open. The caller clears the key, also after GPR_ERROR_MEMORY. */
gpr_status gpr_write_cache_key(const gpr_translation *translation, const char *target,
                               gpr_text *key);

/* 1 and the object, to be cleared by the caller, if the cache holds an undamaged entry for the
 * key; else 0. */
int gpr_cache_read(const char *key, gpr_object *object);

/* Stores an entry if it can, then removes least recently used entries until the cache is within
 * its limit. */
void gpr_cache_write(const char *key, const gpr_object *object);

/* How names of measured costs end, after the digits of a SHA-256 (measured_costs.c). */
#define GPR_COSTS_SUFFIX ".costs"

/* Opens the cache's folder, and makes it if `make`. -1 with a reason, a static text, if there is
 * none that is this user's alone. */
int gpr_cache_folder(int make, const char **reason);

/* The folder's path, or NULL with a reason; it need not exist. */
const char *gpr_cache_path(char *path, size_t room, const char **reason);

/* Whether an open file was made by this user, and nobody else can write to it. */
struct stat;
int gpr_is_ours_alone(const struct stat *about);

/* Puts a file of mode 0600 into the folder, whole or not at all. 0: it could not. */
int gpr_cache_store(int folder, const char *name, const char *data, size_t bytes);

/* Removes every entry and every left-over temporary file. */
void gpr_cache_remove_all(void);

#endif
