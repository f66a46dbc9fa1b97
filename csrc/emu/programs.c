/* Other programs, compilers and addr2line, and the folder of the files that they read and write:
 * new, and accessible to this user alone, so that nobody can create a file of a guessed name
 * first. */
#define _GNU_SOURCE /* environ, secure_getenv */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "emu/emu.h"

int make_folder(char folder[FOLDER_ROOM])
{
    const char *parent = secure_getenv("TMPDIR");
    const int length = snprintf(folder, FOLDER_ROOM, "%s/gpureduce-emulator-XXXXXX",
                                parent != NULL && parent[0] != '\0' ? parent : "/tmp");

    return length < FOLDER_ROOM && mkdtemp(folder) != NULL;
}

void remove_folder(const char *folder)
{
    DIR *all = opendir(folder);
    const int place = all != NULL ? dirfd(all) : -1;

    for (const struct dirent *entry = NULL; place >= 0 && (entry = readdir(all)) != NULL;) {
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            (void)unlinkat(place, entry->d_name, 0);
    }
    if (all != NULL) (void)closedir(all);
    (void)rmdir(folder);
}

/* The environment without preloaded libraries (a sanitizer's, for example), which are not meant for
 * a compiler, and with the folder for temporary files of programs. `temporary` is the entry that
 * names it. */
static char **environment_of_programs(char *temporary)
{
    static const char *const replaced[] = {"LD_PRELOAD=", "TMPDIR="};
    size_t count = 0, kept = 0;

    while (environ[count] != NULL) count++;
    char **result = calloc(count + 2, sizeof *result);
    if (result == NULL) return NULL;
    for (size_t i = 0; i < count; i++) {
        if (strncmp(environ[i], replaced[0], strlen(replaced[0])) != 0 &&
            strncmp(environ[i], replaced[1], strlen(replaced[1])) != 0)
            result[kept++] = environ[i];
    }
    result[kept] = temporary;
    return result;
}

int run_program(char *const *arguments, const char *folder, const char *output)
{
    char temporary[sizeof "TMPDIR=" + FOLDER_ROOM], path[PATH_ROOM];
    posix_spawn_file_actions_t actions;
    int status = -1;
    pid_t child = 0;

    (void)snprintf(temporary, sizeof temporary, "TMPDIR=%s", folder);
    (void)snprintf(path, sizeof path, "%s/%s", folder, output);
    char **environment = environment_of_programs(temporary);
    if (environment == NULL || posix_spawn_file_actions_init(&actions) != 0) {
        free(environment);
        return -1;
    }
    const int redirected = posix_spawn_file_actions_addopen(
                               &actions, 1, path, O_WRONLY | O_CREAT | O_TRUNC, 0600) == 0 &&
                           posix_spawn_file_actions_adddup2(&actions, 1, 2) == 0;
    if (redirected &&
        posix_spawnp(&child, arguments[0], &actions, NULL, arguments, environment) == 0) {
        while (waitpid(child, &status, 0) < 0) {
            status = -1;
            if (errno != EINTR) break;
        }
    }
    (void)posix_spawn_file_actions_destroy(&actions);
    free(environment);
    return status == -1 || !WIFEXITED(status) ? -1 : WEXITSTATUS(status);
}
