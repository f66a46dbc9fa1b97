/* The disk cache: entries are read as they were written, damaged ones are misses, no fault is an
 * error of the call, and the limit holds.
 *
 * Each test has a directory of its own under the system's temporary one. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* nftw */
#endif
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "check.h"
#include "lib/driver/cache.h"

static char root[200], directory[256];

/* ---------------------------------------------------------------- directories ---------------- */

static int remove_one(const char *path, const struct stat *about, int kind, struct FTW *place)
{
    (void)about;
    (void)kind;
    (void)place;
    return remove(path);
}

static void begin(const char *name)
{
    (void)snprintf(directory, sizeof directory, "%s/%s", root, name);
    (void)setenv("GPUREDUCE_CACHE_DIR", directory, 1);
    (void)unsetenv("GPUREDUCE_CACHE_BYTES");
}

static gpr_cache_info info(void)
{
    gpr_cache_info about;

    CHECK(gpr_cache_get_info(&about) == GPR_OK, "info");
    return about;
}

/* Path of the only entry. */
static void find_entry(char *path, size_t room)
{
    char command[600];

    (void)snprintf(command, sizeof command, "ls %s/*.gpr", directory);
    FILE *list = popen(command, "r");
    path[0] = '\0';
    if (list != NULL && fgets(path, (int)room, list) != NULL) path[strcspn(path, "\n")] = '\0';
    if (list != NULL) (void)pclose(list);
    CHECK(path[0] != '\0', "no entry in %s", directory);
}

static int count_files(void)
{
    char command[600], line[32] = "";

    (void)snprintf(command, sizeof command, "ls -A %s | wc -l", directory);
    FILE *list = popen(command, "r");
    if (list != NULL && fgets(line, sizeof line, list) == NULL) line[0] = '\0';
    if (list != NULL) (void)pclose(list);
    return atoi(line);
}

/* ---------------------------------------------------------------- objects -------------------- */

enum { MOST_IMAGE = 3000 };

/* An object whose content follows from `seed`. */
static void make_object(uint64_t seed, gpr_object *object)
{
    const uint64_t before = check_state;

    check_state = seed;
    memset(object, 0, sizeof *object);
    object->entry_count = (int)check_between(1, GPR_MAX_ENTRIES);
    for (int i = 0; i < object->entry_count; i++) {
        char name[64];
        (void)snprintf(name, sizeof name, "_Z%llx", (unsigned long long)check_random());
        object->lowered[i] = strdup(name);
    }
    object->bytes = (size_t)check_between(0, MOST_IMAGE);
    object->image = malloc(object->bytes + 1);
    for (size_t i = 0; i < object->bytes; i++) ((char *)object->image)[i] = (char)check_random();
    check_state = before;
}

static int same(const gpr_object *a, const gpr_object *b)
{
    if (a->entry_count != b->entry_count || a->bytes != b->bytes ||
        memcmp(a->image, b->image, a->bytes) != 0)
        return 0;
    for (int i = 0; i < a->entry_count; i++) {
        if (strcmp(a->lowered[i], b->lowered[i]) != 0) return 0;
    }
    return 1;
}

static void write_seeded(const char *key, uint64_t seed)
{
    gpr_object object;

    make_object(seed, &object);
    gpr_cache_write(key, &object);
    gpr_object_clear(&object);
}

/* 1: a hit with the right content, 0: a miss, -1: a hit with anything else. */
static int read_seeded(const char *key, uint64_t seed)
{
    gpr_object expected, found;
    int result = 0;

    make_object(seed, &expected);
    if (gpr_cache_read(key, &found))
        result = same(&expected, &found) ? 1 : -1;
    else if (found.image != NULL || found.entry_count != 0)
        result = -1;
    gpr_object_clear(&expected);
    gpr_object_clear(&found);
    return result;
}

/* ---------------------------------------------------------------- reading back --------------- */

static void test_what_is_written_is_read_back(void)
{
    char key[64];

    begin("read_back/below/missing");
    CHECK(read_seeded("nothing yet", 1) == 0, "a hit in a cache that does not exist");
    for (uint64_t seed = 0; seed < 100; seed++) {
        (void)snprintf(key, sizeof key, "key %llu\nwith lines", (unsigned long long)seed);
        CHECK(read_seeded(key, seed) == 0, "%s before it was written", key);
        write_seeded(key, seed);
        CHECK(read_seeded(key, seed) == 1, "%s", key);
    }
    for (uint64_t seed = 0; seed < 100; seed++) {
        (void)snprintf(key, sizeof key, "key %llu\nwith lines", (unsigned long long)seed);
        CHECK(read_seeded(key, seed) == 1, "%s", key);
    }
    write_seeded("key 0\nwith lines", 1000); /* an entry may be written twice */
    CHECK(read_seeded("key 0\nwith lines", 1000) == 1, "the later one counts");
    CHECK(info().entries == 100 && strcmp(info().directory, directory) == 0 &&
              info().reason == NULL,
          "%s", directory);
    gpr_cache_remove_all();
    CHECK(info().entries == 0 && info().bytes == 0, "entries after all were removed");
}

static void test_a_directory_made_by_the_cache_is_private(void)
{
    struct stat about;
    char path[400];

    begin("private/inner");
    write_seeded("key", 1);
    CHECK(stat(directory, &about) == 0 && (about.st_mode & 0777) == 0700, "mode %o", about.st_mode);
    find_entry(path, sizeof path);
    CHECK(stat(path, &about) == 0 && (about.st_mode & 0777) == 0600, "mode %o", about.st_mode);
}

/* ---------------------------------------------------------------- damage --------------------- */

static size_t load_file(const char *path, char *content, size_t room)
{
    FILE *file = fopen(path, "rb");
    const size_t bytes = file != NULL ? fread(content, 1, room, file) : 0;

    if (file != NULL) (void)fclose(file);
    return bytes;
}

static void save_file(const char *path, const char *content, size_t bytes)
{
    FILE *file = fopen(path, "wb");

    CHECK(file != NULL && fwrite(content, 1, bytes, file) == bytes, "%s", path);
    if (file != NULL) (void)fclose(file);
}

static void test_every_damaged_byte_is_a_miss_and_makes_room(void)
{
    static char content[1 << 16];
    char path[400];

    begin("damage");
    write_seeded("key", 7);
    find_entry(path, sizeof path);
    const size_t bytes = load_file(path, content, sizeof content);
    for (size_t at = 0; at < bytes; at++) {
        const char before = content[at];
        content[at] = (char)(before ^ (1 << check_between(0, 7)));
        save_file(path, content, bytes);
        CHECK(read_seeded("key", 7) == 0, "byte %zu of %zu", at, bytes);
        CHECK(access(path, F_OK) != 0, "byte %zu: the damaged file stays", at);
        content[at] = before;
    }
    for (size_t length = 0; length < bytes; length += 1 + length / 20) {
        save_file(path, content, length);
        CHECK(read_seeded("key", 7) == 0, "%zu of %zu bytes", length, bytes);
    }
    save_file(path, content, bytes);
    CHECK(read_seeded("key", 7) == 1, "the undamaged file");
    CHECK(info().faults > bytes, "%llu faults", (unsigned long long)info().faults);
}

/* A file under another key's name is not taken for it. */
static void test_an_entry_is_for_its_own_key_only(void)
{
    char one[400], other[400], command[900];

    begin("keys");
    write_seeded("other", 8);
    find_entry(other, sizeof other);
    gpr_cache_remove_all();
    write_seeded("this1", 7);
    find_entry(one, sizeof one);
    (void)snprintf(command, sizeof command, "cp %s %s", one, other);
    CHECK(system(command) == 0, "%s", command);
    CHECK(read_seeded("other", 8) == 0, "a foreign entry is a hit");
    CHECK(read_seeded("this1", 7) == 1, "the entry itself");
}

static void test_what_is_no_plain_file_is_a_miss(void)
{
    char path[400], aside[500];

    begin("sorts");
    write_seeded("key", 7);
    find_entry(path, sizeof path);
    (void)snprintf(aside, sizeof aside, "%s/aside", directory);
    CHECK(rename(path, aside) == 0 && symlink(aside, path) == 0, "symlink");
    CHECK(read_seeded("key", 7) == 0, "a symbolic link is followed");
    write_seeded("key", 7);
    CHECK(read_seeded("key", 7) == 1, "a symbolic link is in the way");
    (void)unlink(path);
    CHECK(mkfifo(path, 0600) == 0, "fifo");
    (void)alarm(10);
    CHECK(read_seeded("key", 7) == 0, "a pipe is waited for");
    (void)alarm(0);
    (void)unlink(path);
    CHECK(mkdir(path, 0700) == 0, "directory");
    CHECK(read_seeded("key", 7) == 0, "a directory is read");
    write_seeded("key", 7); /* cannot be renamed over it: a fault, no more */
    CHECK(rmdir(path) == 0, "directory");
    write_seeded("key", 7);
    CHECK(read_seeded("key", 7) == 1, "after the directory is gone");
}

static void test_an_entry_that_others_could_have_written_is_dropped(void)
{
    enum { OTHER = 12345 };
    char path[400];

    begin("owners");
    for (int mode = 0; mode < 0100; mode++) {
        write_seeded("key", 7);
        find_entry(path, sizeof path);
        CHECK(chmod(path, (mode_t)(0600 | mode)) == 0, "chmod");
        CHECK(read_seeded("key", 7) == ((mode & 022) == 0), "mode %o", 0600 | mode);
        CHECK((access(path, F_OK) == 0) == ((mode & 022) == 0), "mode %o stays", 0600 | mode);
    }
    if (geteuid() == 0) {
        write_seeded("key", 7);
        CHECK(chown(path, OTHER, (gid_t)-1) == 0, "chown");
        CHECK(read_seeded("key", 7) == 0, "another user's entry");
        CHECK(access(path, F_OK) != 0, "another user's entry stays");
    }
}

static void test_the_umask_decides_nothing(void)
{
    static const struct {
        mode_t mask;
        const char *outer, *inner;
    } cases[] = {{0, "umask0", "umask0/inner"},
                 {022, "umask022", "umask022/inner"},
                 {0777, "umask0777", "umask0777/inner"}};
    char path[400];
    struct stat about;

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const mode_t mask = cases[i].mask;

        begin(cases[i].inner);
        CHECK(access(directory, F_OK) != 0, "the directory is there already");
        const mode_t before = umask(mask);
        write_seeded("key", i);
        (void)umask(before);
        (void)snprintf(path, sizeof path, "%s/%s", root, cases[i].outer);
        CHECK(stat(path, &about) == 0 && (about.st_mode & 07777) == 0700, "umask %o: mode %o of %s",
              mask, about.st_mode, path);
        CHECK(stat(directory, &about) == 0 && (about.st_mode & 07777) == 0700,
              "umask %o: mode %o of %s", mask, about.st_mode, directory);
        find_entry(path, sizeof path);
        CHECK(stat(path, &about) == 0 && (about.st_mode & 07777) == 0600, "umask %o: mode %o", mask,
              about.st_mode);
        CHECK(read_seeded("key", i) == 1, "umask %o", mask);
    }
}

static void test_clearing_takes_nothing_of_the_users(void)
{
    char paths[7][400], inside[500];

    begin("clearing");
    write_seeded("key", 7);
    (void)snprintf(paths[0], sizeof paths[0], "%s/.my.gpr.notes", directory);
    (void)snprintf(paths[1], sizeof paths[1], "%s/%.64s.gpr", directory,
                   "theses-and-drafts-of-a-user-who-likes-names-of-sixty-four-letters");
    (void)snprintf(paths[2], sizeof paths[2], "%s/%064d.gpr.old", directory, 1);
    (void)snprintf(paths[3], sizeof paths[3], "%s/.%064d.gpr.txt", directory, 2);
    (void)snprintf(paths[4], sizeof paths[4], "%s/%063d.gpr", directory, 3);
    for (int i = 0; i < 5; i++) save_file(paths[i], "mine", 4);
    (void)snprintf(paths[5], sizeof paths[5], "%s/%064d.gpr", directory, 4);
    CHECK(symlink(paths[0], paths[5]) == 0, "symlink");
    (void)snprintf(paths[6], sizeof paths[6], "%s/%064d.gpr", directory, 5);
    CHECK(mkdir(paths[6], 0700) == 0, "mkdir");
    (void)snprintf(inside, sizeof inside, "%s/file", paths[6]);
    save_file(inside, "mine", 4);
    CHECK(info().entries == 1, "%d entries", (int)info().entries);
    gpr_cache_remove_all();
    for (int i = 0; i < 7; i++) CHECK(access(paths[i], F_OK) == 0, "%s is gone", paths[i]);
    CHECK(info().entries == 0 && read_seeded("key", 7) == 0, "the entry stays");
}

/* ---------------------------------------------------------------- directories not used ------- */

static void expect_off(const char *why)
{
    const uint64_t hits = info().hits;

    CHECK(info().directory[0] == '\0' && info().reason != NULL, "%s: the cache is used", why);
    write_seeded("key", 7);
    CHECK(read_seeded("key", 7) == 0 && info().hits == hits, "%s", why);
}

static void test_directories_that_others_could_write_to_are_not_used(void)
{
    char link[300];

    begin("modes");
    write_seeded("key", 7);
    for (int mode = 0; mode < 0100; mode++) {
        CHECK(chmod(directory, (mode_t)(0700 | mode)) == 0, "chmod");
        CHECK(read_seeded("key", 7) == ((mode & 022) == 0), "mode %o", 0700 | mode);
    }
    CHECK(chmod(directory, 0770) == 0, "chmod");
    expect_off("writable for the group");
    CHECK(chmod(directory, 0700) == 0, "chmod");
    CHECK(read_seeded("key", 7) == 1, "private again");
    (void)snprintf(link, sizeof link, "%s/link", root);
    CHECK(symlink(directory, link) == 0, "symlink");
    (void)setenv("GPUREDUCE_CACHE_DIR", link, 1);
    expect_off("a symbolic link");
    if (geteuid() == 0) {
        begin("foreign");
        write_seeded("key", 7);
        CHECK(read_seeded("key", 7) == 1, "own directory");
        CHECK(chown(directory, 12345, (gid_t)-1) == 0, "chown");
        expect_off("another user's directory");
    }
}

static void test_directories_that_cannot_be_made_switch_the_cache_off(void)
{
    char file[300];
    static char endless[3000];

    begin("a_file");
    (void)snprintf(file, sizeof file, "%s/a_file", root);
    save_file(file, "x", 1);
    expect_off("a file in the directory's place");
    begin("a_file/below");
    expect_off("a file in the way");
    memset(endless, 'x', sizeof endless - 1);
    endless[0] = '/';
    (void)setenv("GPUREDUCE_CACHE_DIR", endless, 1);
    expect_off("a path that is too long");
    (void)setenv("GPUREDUCE_CACHE_DIR", "/proc/nowhere", 1);
    expect_off("a directory that cannot be written");
}

/* Files that root made in a user's home, as under sudo, which keeps HOME, would be of no use to the
 * user. */
static void test_root_makes_nothing_in_a_users_folder(void)
{
    enum { USER = 12345 };
    static const char *const variables[] = {"HOME", "XDG_CACHE_HOME", "GPUREDUCE_CACHE_DIR"};
    char place[sizeof directory + 16];

    if (geteuid() != 0) return;
    begin("home");
    CHECK(mkdir(directory, 0755) == 0 && chown(directory, USER, USER) == 0, "home");
    for (size_t i = 0; i < sizeof variables / sizeof variables[0]; i++) {
        for (size_t j = 0; j < sizeof variables / sizeof variables[0]; j++)
            (void)unsetenv(variables[j]);
        (void)snprintf(place, sizeof place, "%s%s", directory, i == 2 ? "/some/cache" : "");
        (void)setenv(variables[i], place, 1);
        expect_off(variables[i]);
        CHECK(strstr(info().reason, "another user") != NULL, "%s", info().reason);
        CHECK(count_files() == 0, "%s: something was made", variables[i]);
    }
    (void)setenv("HOME", root, 1);
}

static void test_the_environment_says_where_and_whether(void)
{
    char expected[300];

    begin("off");
    (void)setenv("GPUREDUCE_CACHE_BYTES", "0", 1);
    expect_off("GPUREDUCE_CACHE_BYTES=0");
    CHECK(strstr(info().reason, "GPUREDUCE_CACHE_BYTES") != NULL, "%s", info().reason);
    CHECK(access(directory, F_OK) != 0, "a cache that is off makes its directory");
    static const char *const senseless[] = {"", "many", "-5", "12x", "99999999999999999999999"};
    for (int i = 0; i < 5; i++) {
        (void)setenv("GPUREDUCE_CACHE_BYTES", senseless[i], 1);
        CHECK(info().limit_bytes == 256u << 20, "\"%s\": %llu", senseless[i],
              (unsigned long long)info().limit_bytes);
    }
    (void)unsetenv("GPUREDUCE_CACHE_BYTES");
    (void)unsetenv("GPUREDUCE_CACHE_DIR");
    (void)setenv("HOME", root, 1);
    (void)setenv("XDG_CACHE_HOME", "", 1);
    (void)snprintf(expected, sizeof expected, "%s/.cache/gpureduce", root);
    CHECK(strcmp(info().directory, expected) == 0, "%s", info().directory);
    (void)snprintf(expected, sizeof expected, "%s/xdg/gpureduce", root);
    char xdg[300];
    (void)snprintf(xdg, sizeof xdg, "%s/xdg", root);
    (void)setenv("XDG_CACHE_HOME", xdg, 1);
    CHECK(strcmp(info().directory, expected) == 0, "%s", info().directory);
    (void)unsetenv("XDG_CACHE_HOME");
    (void)unsetenv("HOME");
    expect_off("no home");
}

/* ---------------------------------------------------------------- the limit ------------------ */

/* Makes an entry look as if it was last used at `when`. */
static void set_used(const char *key, uint64_t seed, time_t when)
{
    char path[400], before[sizeof directory] = "", command[600];

    /* The name of its file is found by writing it alone to another directory. */
    memcpy(before, directory, sizeof before);
    begin("scratch");
    gpr_cache_remove_all();
    write_seeded(key, seed);
    find_entry(path, sizeof path);
    const char *name = strrchr(path, '/') + 1;
    (void)snprintf(command, sizeof command, "%s/%s", before, name);
    const struct timespec times[2] = {{.tv_sec = when}, {.tv_sec = when}};
    CHECK(utimensat(AT_FDCWD, command, times, 0) == 0, "%s", command);
    memcpy(directory, before, sizeof directory);
    (void)setenv("GPUREDUCE_CACHE_DIR", directory, 1);
}

static void test_the_least_recently_used_entries_make_way(void)
{
    enum { ENTRIES = 40 };
    const time_t now = time(NULL);
    char key[32], limit[32];
    int kept = 0;

    begin("limit");
    for (uint64_t i = 0; i < ENTRIES; i++) {
        (void)snprintf(key, sizeof key, "key %llu", (unsigned long long)i);
        write_seeded(key, i);
        set_used(key, i, now - 1000 + (time_t)i);
    }
    CHECK(info().entries == ENTRIES, "%llu entries", (unsigned long long)info().entries);
    for (uint64_t i = 0; i < ENTRIES; i += 4) { /* used again: the youngest now */
        (void)snprintf(key, sizeof key, "key %llu", (unsigned long long)i);
        CHECK(read_seeded(key, i) == 1, "%s", key);
    }
    const uint64_t cap = info().bytes / 2;
    (void)snprintf(limit, sizeof limit, "%llu", (unsigned long long)cap);
    (void)setenv("GPUREDUCE_CACHE_BYTES", limit, 1);
    write_seeded("one more", 1000);
    CHECK(info().bytes <= cap && info().bytes + 2 * (MOST_IMAGE + 500) > cap, "%llu bytes of %llu",
          (unsigned long long)info().bytes, (unsigned long long)cap);
    CHECK(read_seeded("one more", 1000) == 1, "the newest entry is gone");
    for (uint64_t i = 0; i < ENTRIES; i++) {
        (void)snprintf(key, sizeof key, "key %llu", (unsigned long long)i);
        const int found = read_seeded(key, i);
        if (i % 4 == 0) CHECK(found == 1, "%s, used lately, is gone", key);
        if (i % 4 == 0) continue;
        CHECK(found == 1 || kept == 0, "%s is gone and an older one is there", key);
        kept += found == 1;
    }
    CHECK(kept > 0, "only entries that were used again are left");
}

static void test_an_entry_beyond_the_limit_costs_no_other_its_place(void)
{
    gpr_object large = {.bytes = 100000};

    begin("large");
    (void)setenv("GPUREDUCE_CACHE_BYTES", "50000", 1);
    for (uint64_t i = 0; i < 5; i++) {
        char key[32];
        (void)snprintf(key, sizeof key, "key %llu", (unsigned long long)i);
        write_seeded(key, i);
    }
    const uint64_t before = info().entries;
    large.image = calloc(1, large.bytes);
    gpr_cache_write("large", &large);
    gpr_object_clear(&large);
    CHECK(info().entries == before, "%llu entries of %llu", (unsigned long long)info().entries,
          (unsigned long long)before);
}

static void test_files_left_by_dead_writers_go_in_time(void)
{
    char path[600], foreign[600];
    const struct timespec old[2] = {{.tv_sec = time(NULL) - 7200}, {.tv_sec = time(NULL) - 7200}};

    begin("temporaries");
    write_seeded("key", 1);
    (void)snprintf(foreign, sizeof foreign, "%s/.%064d.of-others", directory, 0);
    save_file(foreign, "as old", 6);
    CHECK(utimensat(AT_FDCWD, foreign, old, 0) == 0, "utimensat");
    for (int i = 0; i < 2; i++) {
        (void)snprintf(path, sizeof path, "%s/.%064d.gpr.1234.%d", directory, 0, i);
        save_file(path, "half an ent", 11);
        if (i == 0) CHECK(utimensat(AT_FDCWD, path, old, 0) == 0, "utimensat");
    }
    (void)setenv("GPUREDUCE_CACHE_BYTES", "8000", 1);
    for (uint64_t i = 0; i < 10; i++) {
        char key[32];
        (void)snprintf(key, sizeof key, "more %llu", (unsigned long long)i);
        write_seeded(key, i);
    }
    CHECK(access(path, F_OK) == 0, "the young file may still have a writer");
    path[strlen(path) - 1] = '0';
    CHECK(access(path, F_OK) != 0, "the old file stays");
    gpr_cache_remove_all();
    CHECK(unlink(foreign) == 0, "a file of others was removed");
    CHECK(count_files() == 0, "%d files", count_files());
}

/* ---------------------------------------------------------------- a full disk, many writers -- */

static void test_a_full_disk_is_a_fault_and_leaves_nothing(void)
{
    const struct rlimit full = {.rlim_cur = 100, .rlim_max = RLIM_INFINITY};
    struct rlimit before;

    begin("full");
    write_seeded("first", 1);
    (void)signal(SIGXFSZ, SIG_IGN);
    CHECK(getrlimit(RLIMIT_FSIZE, &before) == 0 && setrlimit(RLIMIT_FSIZE, &full) == 0,
          "setrlimit");
    const uint64_t faults = info().faults;
    write_seeded("second", 2);
    CHECK(read_seeded("second", 2) == 0, "an entry that could not be written");
    const uint64_t more = info().faults;
    CHECK(setrlimit(RLIMIT_FSIZE, &before) == 0, "setrlimit");
    CHECK(more == faults + 1, "%llu faults, then %llu", (unsigned long long)faults,
          (unsigned long long)more);
    CHECK(count_files() == 1, "%d files", count_files());
    write_seeded("second", 2);
    CHECK(read_seeded("second", 2) == 1 && read_seeded("first", 1) == 1,
          "after there is room again");
}

/* One of several processes that write, read and clear the same entries at once. */
static int work_on_shared_entries(int process)
{
    int wrong = 0;

    check_state += (uint64_t)process;
    for (int i = 0; i < 400; i++) {
        char key[32];
        const uint64_t which = (uint64_t)check_between(0, 5);
        (void)snprintf(key, sizeof key, "key %llu", (unsigned long long)which);
        if (check_between(0, 1)) write_seeded(key, which);
        wrong += read_seeded(key, which) < 0;
        if (check_between(0, 60) == 0) gpr_cache_remove_all();
    }
    return wrong != 0;
}

static void test_processes_that_write_at_once_see_whole_entries(void)
{
    enum { PROCESSES = 4 };
    int status = 0;

    begin("shared");
    (void)fflush(stdout);
    for (int i = 0; i < PROCESSES; i++) {
        if (fork() == 0) _exit(work_on_shared_entries(i));
    }
    for (int i = 0; i < PROCESSES; i++)
        CHECK(wait(&status) > 0 && status == 0, "wait status %d", status);
    gpr_cache_remove_all();
    CHECK(count_files() == 0, "%d files", count_files());
    write_seeded("key", 1);
    CHECK(read_seeded("key", 1) == 1, "afterwards");
}

int main(void)
{
    const char *temporary = getenv("TMPDIR");

    check_begin();
    (void)snprintf(root, sizeof root, "%s/gpureduce-cache-XXXXXX",
                   temporary != NULL ? temporary : "/tmp");
    if (mkdtemp(root) == NULL) return 1;
    test_what_is_written_is_read_back();
    test_a_directory_made_by_the_cache_is_private();
    test_every_damaged_byte_is_a_miss_and_makes_room();
    test_an_entry_is_for_its_own_key_only();
    test_what_is_no_plain_file_is_a_miss();
    test_an_entry_that_others_could_have_written_is_dropped();
    test_the_umask_decides_nothing();
    test_clearing_takes_nothing_of_the_users();
    test_directories_that_others_could_write_to_are_not_used();
    test_root_makes_nothing_in_a_users_folder();
    test_directories_that_cannot_be_made_switch_the_cache_off();
    test_the_least_recently_used_entries_make_way();
    test_an_entry_beyond_the_limit_costs_no_other_its_place();
    test_files_left_by_dead_writers_go_in_time();
    test_a_full_disk_is_a_fault_and_leaves_nothing();
    test_processes_that_write_at_once_see_whole_entries();
    test_the_environment_says_where_and_whether();
    (void)nftw(root, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    return check_end();
}
