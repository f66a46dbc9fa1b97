/* Settings of the library in environment variables. */
#ifndef GPR_LIB_ENVIRONMENT_H
#define GPR_LIB_ENVIRONMENT_H

/* A variable's value; NULL if it is not set, or if this process has rights that who set it may not
 * have (setuid, file capabilities): variables name code that is loaded, and files. */
const char *gpr_environment(const char *name);

#endif
