/* The disk cache and its keys; see cache.h.
 *
 * Layout of an entry, integers in the machine's byte order (a cache is not moved between machines;
 * a foreign one fails the schema check):
 *   char magic[8]; uint32 schema; uint32 key_bytes; uint64 body_bytes;
 *   uint8 sha256_of_key_and_body[32]; key; body
 * body:
 *   uint32 entry_count; entry_count times (uint32 bytes; lowered name);
 *   uint64 image_bytes; image */
#define _GNU_SOURCE /* O_PATH */
#include "lib/driver/cache.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "lib/base/environment.h"
#include "lib/base/sha256.h"

static const char MAGIC[8] = "GPRCACHE";
enum { ABANDONED_SECONDS = 3600 }; /* age at which a temporary file has no writer any more */
enum { SCHEMA = 1, SUFFIX_LENGTH = 4, NAME_LENGTH = GPR_SHA256_HEX - 1 + SUFFIX_LENGTH };
static const char SUFFIX[] = ".gpr";
static const uint64_t DEFAULT_LIMIT = 256u << 20;
static const uint64_t LARGEST_ENTRY = 64u << 20;
enum { PATH_ROOM = 1024 };

static atomic_uint_fast64_t hits, misses, writes, faults;
static atomic_uint serial; /* makes temporary names unique within the process */

typedef struct entry_header {
    char magic[8];
    uint32_t schema;
    uint32_t key_bytes;
    uint64_t body_bytes;
    uint8_t digest[GPR_SHA256_BYTES];
} entry_header;

/* ---------------------------------------------------------------- the key -------------------- */

gpr_status gpr_write_cache_key(const gpr_translation *translation, const char *target,
                               gpr_text *key)
{
    gpr_text_add(key, "gpureduce %s\nnvrtc %d\ntarget %s\nsources %s\nheaders %s\n", gpr_version(),
                 gpr_nvrtc_version(), target, translation->source_digest,
                 translation->header_stamp != NULL ? translation->header_stamp : "");
    for (int i = 0; i < translation->option_count; i++)
        gpr_text_add(key, "option %s\n", translation->options[i]);
    for (int i = 0; i < translation->entry_count; i++)
        gpr_text_add(key, "entry %s\n", translation->entries[i]);
    gpr_text_add(key, "%s", translation->text);
    return gpr_text_status(key);
}

/* ---------------------------------------------------------------- the directory -------------- */

static uint64_t size_limit(void)
{
    const char *text = gpr_environment("GPUREDUCE_CACHE_BYTES");
    char *end = NULL;

    if (text == NULL || *text == '\0') return DEFAULT_LIMIT;
    errno = 0;
    const unsigned long long value = strtoull(text, &end, 10);
    return errno == 0 && *end == '\0' && *text != '-' ? value : DEFAULT_LIMIT;
}

const char *gpr_cache_path(char *path, size_t room, const char **reason)
{
    const char *own = gpr_environment("GPUREDUCE_CACHE_DIR");
    const char *xdg = gpr_environment("XDG_CACHE_HOME");
    const char *home = gpr_environment("HOME");
    int length = -1;

    *reason = NULL;
    if (size_limit() == 0) {
        *reason = "GPUREDUCE_CACHE_BYTES is 0";
        return NULL;
    }
    if (own != NULL && *own != '\0') {
        length = snprintf(path, room, "%s", own);
    } else if (xdg != NULL && *xdg == '/') {
        length = snprintf(path, room, "%s/gpureduce", xdg);
    } else if (home != NULL && *home == '/') {
        length = snprintf(path, room, "%s/.cache/gpureduce", home);
    }
    if (length < 0) {
        *reason = "neither GPUREDUCE_CACHE_DIR, XDG_CACHE_HOME nor HOME is set";
    } else if ((size_t)length >= room) {
        *reason = "the cache directory's path is too long";
    }
    return *reason == NULL ? path : NULL;
}

int gpr_is_ours_alone(const struct stat *about)
{
    return about->st_uid == geteuid() && (about->st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

/* Makes the folders of a path, but none in another user's folder, and returns whether it might:
 * that user could put it elsewhere, and a folder that root makes in a user's home locks the user
 * out. */
static int make_directories(const char *path)
{
    enum { WAY = O_PATH | O_DIRECTORY | O_CLOEXEC }; /* folders that this user may not list, too */
    char parts[PATH_ROOM], *rest = NULL;
    int folder = open(path[0] == '/' ? "/" : ".", WAY), allowed = 1;

    (void)snprintf(parts, sizeof parts, "%s", path);
    for (const char *name = strtok_r(parts, "/", &rest); name != NULL && folder >= 0;
         name = strtok_r(NULL, "/", &rest)) {
        struct stat about;
        int next = openat(folder, name, WAY);
        if (next < 0 && errno == ENOENT) {
            allowed =
                fstat(folder, &about) == 0 && (about.st_uid == 0 || about.st_uid == geteuid());
            if (allowed) {
                /* Another process may have been faster. The umask may forbid even this user; where
                 * that cannot be changed, opening the folder fails. */
                (void)(mkdirat(folder, name, 0700) == 0 &&
                       fchmodat(folder, name, 0700, AT_SYMLINK_NOFOLLOW) == 0);
                next = openat(folder, name, WAY);
            }
        }
        close(folder);
        folder = next;
    }
    if (folder >= 0) close(folder);
    return allowed;
}

/* A directory that others can write to could hand us their machine code. */
int gpr_cache_folder(int make, const char **reason)
{
    enum { FOLDER = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC };
    char room[PATH_ROOM];
    struct stat about;
    const char *path = gpr_cache_path(room, sizeof room, reason);

    if (path == NULL) return -1;
    int directory = open(path, FOLDER);
    if (directory < 0 && errno == ENOENT && make) {
        if (!make_directories(path)) {
            *reason = "the cache directory would be in another user's";
            return -1;
        }
        directory = open(path, FOLDER);
    }
    if (directory < 0) {
        *reason = errno == ENOENT ? "the cache directory does not exist yet"
                                  : "the cache directory cannot be opened";
        return -1;
    }
    if (fstat(directory, &about) != 0 || !gpr_is_ours_alone(&about)) {
        *reason = "the cache directory is not this user's alone";
        close(directory);
        return -1;
    }
    return directory;
}

static void entry_name(const char *key, char name[NAME_LENGTH + 1])
{
    gpr_sha256_of_text(key, name);
    memcpy(name + GPR_SHA256_HEX - 1, SUFFIX, sizeof SUFFIX);
}

/* Whether a name begins as an entry's does. */
static int names_entry(const char *name)
{
    return strspn(name, "0123456789abcdef") == GPR_SHA256_HEX - 1 &&
           strncmp(name + GPR_SHA256_HEX - 1, SUFFIX, SUFFIX_LENGTH) == 0;
}

static int is_entry(const char *name)
{
    return names_entry(name) && name[NAME_LENGTH] == '\0';
}

/* Left by a process that died while writing: the name of an entry or of measured costs, its process
 * and a number. */
static int is_temporary(const char *name)
{
    const char *rest = name + 1;

    if (name[0] != '.' || strspn(rest, "0123456789abcdef") != GPR_SHA256_HEX - 1) return 0;
    rest += GPR_SHA256_HEX - 1;
    if (strncmp(rest, SUFFIX, SUFFIX_LENGTH) == 0)
        rest += SUFFIX_LENGTH;
    else if (strncmp(rest, GPR_COSTS_SUFFIX, sizeof GPR_COSTS_SUFFIX - 1) == 0)
        rest += sizeof GPR_COSTS_SUFFIX - 1;
    else
        return 0;
    return rest[0] == '.' && strspn(rest, ".0123456789") == strlen(rest);
}

/* ---------------------------------------------------------------- reading -------------------- */

static void entry_digest(const char *key, const void *body, size_t body_bytes,
                         uint8_t digest[GPR_SHA256_BYTES])
{
    gpr_sha256 hash;

    gpr_sha256_begin(&hash);
    gpr_sha256_add(&hash, key, strlen(key));
    gpr_sha256_add(&hash, body, body_bytes);
    gpr_sha256_end(&hash, digest);
}

static int read_all(int file, void *data, size_t bytes)
{
    char *at = data;

    while (bytes > 0) {
        const ssize_t got = read(file, at, bytes);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) return 0;
        at += got;
        bytes -= (size_t)got;
    }
    return 1;
}

/* Takes `bytes` from the front of a body; NULL if it is shorter. */
static const char *take(const char **at, const char *end, size_t bytes)
{
    const char *part = *at;

    if ((size_t)(end - part) < bytes) return NULL;
    *at += bytes;
    return part;
}

/* The outcome of reading an entry. One that cannot be examined, or for which there is no memory,
 * may be good. */
typedef enum outcome { GOOD, DAMAGED, UNKNOWN } outcome;

static outcome parse_body(const char *at, size_t bytes, gpr_object *object)
{
    const char *end = at + bytes, *part = take(&at, end, sizeof(uint32_t));
    uint32_t count = 0, length = 0;
    uint64_t image_bytes = 0;

    if (part == NULL) return DAMAGED;
    memcpy(&count, part, sizeof count);
    if (count > GPR_MAX_ENTRIES) return DAMAGED;
    for (uint32_t i = 0; i < count; i++) {
        if ((part = take(&at, end, sizeof length)) == NULL) return DAMAGED;
        memcpy(&length, part, sizeof length);
        if ((part = take(&at, end, length)) == NULL) return DAMAGED;
        if ((object->lowered[i] = strndup(part, length)) == NULL) return UNKNOWN;
        object->entry_count = (int)i + 1;
    }
    if ((part = take(&at, end, sizeof image_bytes)) == NULL) return DAMAGED;
    memcpy(&image_bytes, part, sizeof image_bytes);
    if (image_bytes != (uint64_t)(end - at)) return DAMAGED;
    object->image = malloc((size_t)image_bytes + 1);
    if (object->image == NULL) return UNKNOWN;
    memcpy(object->image, at, (size_t)image_bytes);
    ((char *)object->image)[image_bytes] = '\0'; /* PTX is text */
    object->bytes = (size_t)image_bytes;
    return GOOD;
}

/* Reads an entry that claims to be for `key`. */
static outcome read_entry(int file, const char *key, gpr_object *object)
{
    entry_header header;
    uint8_t digest[GPR_SHA256_BYTES];
    const size_t key_bytes = strlen(key);
    char *content = NULL;
    struct stat about;
    outcome result = DAMAGED;

    /* A file that others could write to is not trusted. */
    if (fstat(file, &about) != 0) return UNKNOWN;
    if (!S_ISREG(about.st_mode) || !gpr_is_ours_alone(&about)) return DAMAGED;
    if (!read_all(file, &header, sizeof header)) return DAMAGED;
    if (memcmp(header.magic, MAGIC, sizeof MAGIC) != 0 || header.schema != SCHEMA ||
        header.key_bytes != key_bytes || header.body_bytes > LARGEST_ENTRY) {
        return DAMAGED;
    }
    content = malloc(key_bytes + (size_t)header.body_bytes);
    if (content == NULL) return UNKNOWN;
    if (!read_all(file, content, key_bytes + (size_t)header.body_bytes)) goto done;
    if (memcmp(content, key, key_bytes) != 0) goto done;
    entry_digest(key, content + key_bytes, (size_t)header.body_bytes, digest);
    if (memcmp(digest, header.digest, sizeof digest) != 0) goto done;
    result = parse_body(content + key_bytes, (size_t)header.body_bytes, object);
    if (result != GOOD) gpr_object_clear(object);
done:
    free(content);
    return result;
}

int gpr_cache_read(const char *key, gpr_object *object)
{
    char name[NAME_LENGTH + 1];
    const char *reason = NULL;
    const int directory = gpr_cache_folder(0, &reason);
    int file = -1, found = 0;

    *object = (gpr_object){0};
    if (directory >= 0) {
        entry_name(key, name);
        file = openat(directory, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    }
    if (file >= 0) {
        const outcome result = read_entry(file, key, object);
        found = result == GOOD;
        if (found) {
            /* recently used; where the time cannot be set, it just counts as older */
            (void)futimens(file, NULL);
        } else {
            atomic_fetch_add(&faults, 1);
        }
        if (result == DAMAGED) (void)unlinkat(directory, name, 0); /* make room for a good one */
        close(file);
    }
    if (directory >= 0) close(directory);
    atomic_fetch_add(found ? &hits : &misses, 1);
    return found;
}

/* ---------------------------------------------------------------- writing -------------------- */

static char *append(char *at, const void *data, size_t bytes)
{
    memcpy(at, data, bytes);
    return at + bytes;
}

/* The whole entry in one malloc'ed piece. */
static char *make_entry(const char *key, const gpr_object *object, size_t *bytes)
{
    const size_t key_bytes = strlen(key);
    size_t body_bytes = sizeof(uint32_t) + sizeof(uint64_t) + object->bytes;
    const uint32_t count = (uint32_t)object->entry_count;
    const uint64_t image_bytes = object->bytes;

    for (int i = 0; i < object->entry_count; i++)
        body_bytes += sizeof(uint32_t) + strlen(object->lowered[i]);
    *bytes = sizeof(entry_header) + key_bytes + body_bytes;

    char *entry = malloc(*bytes);
    if (entry == NULL) return NULL;
    char *body = entry + sizeof(entry_header) + key_bytes;
    char *at = append(body, &count, sizeof count);
    for (int i = 0; i < object->entry_count; i++) {
        const uint32_t length = (uint32_t)strlen(object->lowered[i]);
        at = append(at, &length, sizeof length);
        at = append(at, object->lowered[i], length);
    }
    at = append(at, &image_bytes, sizeof image_bytes);
    (void)append(at, object->image, object->bytes);

    entry_header header = {
        .schema = SCHEMA, .key_bytes = (uint32_t)key_bytes, .body_bytes = body_bytes};
    memcpy(header.magic, MAGIC, sizeof MAGIC);
    entry_digest(key, body, body_bytes, header.digest);
    (void)append(append(entry, &header, sizeof header), key, key_bytes);
    return entry;
}

static int write_all(int file, const char *data, size_t bytes)
{
    while (bytes > 0) {
        const ssize_t put = write(file, data, bytes);
        if (put < 0 && errno == EINTR) continue;
        if (put <= 0) return 0;
        data += put;
        bytes -= (size_t)put;
    }
    return 1;
}

/* Visits the entries and, if `temporaries`, the temporary files of the directory. */
static void for_each_file(int directory, int temporaries,
                          void (*visit)(int, const char *, const struct stat *, void *),
                          void *context)
{
    struct stat about;
    const int copy = openat(directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *listing = copy >= 0 ? fdopendir(copy) : NULL;
    struct dirent *item = NULL;

    if (listing == NULL) {
        if (copy >= 0) close(copy);
        return;
    }
    while ((item = readdir(listing)) != NULL) {
        if (!is_entry(item->d_name) && !(temporaries && is_temporary(item->d_name))) continue;
        if (fstatat(directory, item->d_name, &about, AT_SYMLINK_NOFOLLOW) == 0 &&
            S_ISREG(about.st_mode)) {
            visit(directory, item->d_name, &about, context);
        }
    }
    closedir(listing);
}

typedef struct census {
    uint64_t entries, bytes;
} census;

static void count_entry(int directory, const char *name, const struct stat *about, void *context)
{
    census *all = context;

    (void)directory;
    (void)name;
    all->entries++;
    all->bytes += (uint64_t)about->st_size;
}

static void remove_file(int directory, const char *name, const struct stat *about, void *context)
{
    (void)about;
    (void)context;
    (void)unlinkat(directory, name, 0);
}

/* An entry as trimming sees it. */
typedef struct candidate {
    struct timespec used;
    uint64_t bytes;
    char name[NAME_LENGTH + 1];
} candidate;

typedef struct candidates {
    candidate *items;
    uint64_t count, room;
} candidates;

/* Notes an entry; removes a temporary file that no live process can still be writing. */
static void note_entry(int directory, const char *name, const struct stat *about, void *context)
{
    candidates *all = context;

    if (!is_entry(name)) {
        if (time(NULL) - about->st_mtim.tv_sec > ABANDONED_SECONDS)
            (void)unlinkat(directory, name, 0);
        return;
    }
    /* written since they were counted: the next trimming sees it */
    if (all->count == all->room) return;
    candidate *item = &all->items[all->count++];
    item->used = about->st_mtim;
    item->bytes = (uint64_t)about->st_size;
    memcpy(item->name, name, sizeof item->name);
}

static int used_earlier(const void *a, const void *b)
{
    const struct timespec x = ((const candidate *)a)->used, y = ((const candidate *)b)->used;

    if (x.tv_sec != y.tv_sec) return x.tv_sec < y.tv_sec ? -1 : 1;
    return x.tv_nsec < y.tv_nsec ? -1 : x.tv_nsec > y.tv_nsec;
}

/* Removes least recently used entries until the rest fits. */
static void trim(int directory)
{
    const uint64_t limit = size_limit();
    census before = {0};
    candidates all = {0};

    for_each_file(directory, 0, count_entry, &before);
    if (before.bytes <= limit) return;
    all.room = before.entries;
    all.items = malloc(all.room * sizeof *all.items);
    if (all.items == NULL) return;
    for_each_file(directory, 1, note_entry, &all);
    qsort(all.items, all.count, sizeof *all.items, used_earlier);
    for (uint64_t i = 0; i < all.count && before.bytes > limit; i++) {
        /* if it is gone, another process was faster */
        (void)unlinkat(directory, all.items[i].name, 0);
        before.bytes -= all.items[i].bytes < before.bytes ? all.items[i].bytes : before.bytes;
    }
    free(all.items);
}

int gpr_cache_store(int folder, const char *name, const char *data, size_t bytes)
{
    char temporary[NAME_LENGTH + 40];
    int file = -1, good = 0;

    (void)snprintf(temporary, sizeof temporary, ".%s.%ld.%u", name, (long)getpid(),
                   atomic_fetch_add(&serial, 1));
    file = openat(folder, temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (file < 0) return 0;
    /* 0600 whatever the umask: an entry that its owner cannot read would be compiled each time */
    good = fchmod(file, 0600) == 0 && write_all(file, data, bytes) && fsync(file) == 0;
    good = close(file) == 0 && good;
    good = good && renameat(folder, temporary, folder, name) == 0;
    if (!good) (void)unlinkat(folder, temporary, 0);
    return good;
}

void gpr_cache_write(const char *key, const gpr_object *object)
{
    char name[NAME_LENGTH + 1];
    const char *reason = NULL;
    const int directory = gpr_cache_folder(1, &reason);
    size_t bytes = 0;
    char *entry = NULL;
    int good = 0;

    if (directory < 0) {
        if (size_limit() != 0) atomic_fetch_add(&faults, 1);
        return;
    }
    entry = make_entry(key, object, &bytes);
    if (entry == NULL || bytes > size_limit() || bytes > LARGEST_ENTRY)
        goto done; /* it would cost every other entry its place */
    entry_name(key, name);
    good = gpr_cache_store(directory, name, entry, bytes);
    trim(directory);
done:
    atomic_fetch_add(good ? &writes : &faults, 1);
    free(entry);
    close(directory);
}

/* ---------------------------------------------------------------- looking, clearing ---------- */

gpr_status gpr_cache_get_info(gpr_cache_info *info)
{
    const char *reason = NULL;
    const int directory = gpr_cache_folder(1, &reason);
    census all = {0};

    *info = (gpr_cache_info){.reason = reason, .limit_bytes = size_limit()};
    if (directory >= 0) {
        (void)gpr_cache_path(info->directory, sizeof info->directory, &reason);
        for_each_file(directory, 0, count_entry, &all);
        close(directory);
    }
    info->entries = all.entries;
    info->bytes = all.bytes;
    info->hits = atomic_load(&hits);
    info->misses = atomic_load(&misses);
    info->writes = atomic_load(&writes);
    info->faults = atomic_load(&faults);
    return GPR_OK;
}

void gpr_cache_remove_all(void)
{
    const char *reason = NULL;
    const int directory = gpr_cache_folder(0, &reason);

    if (directory < 0) return;
    for_each_file(directory, 1, remove_file, NULL);
    close(directory);
}
