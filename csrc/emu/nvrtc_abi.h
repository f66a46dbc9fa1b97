/* What NVRTC's functions return, and how a stand-in exports its own. */
#ifndef GPR_EMU_NVRTC_ABI_H
#define GPR_EMU_NVRTC_ABI_H

#define API __attribute__((visibility("default")))

enum {
    SUCCESS = 0,
    OUT_OF_MEMORY = 1,
    INVALID_INPUT = 3,
    INVALID_PROGRAM = 4,
    INVALID_OPTION = 5,
    COMPILATION = 6,
    INTERNAL_ERROR = 11
};

/* nvrtcGetErrorString */
static inline const char *nvrtc_error_name(int result)
{
    switch (result) {
    case SUCCESS: return "NVRTC_SUCCESS";
    case OUT_OF_MEMORY: return "NVRTC_ERROR_OUT_OF_MEMORY";
    case INVALID_INPUT: return "NVRTC_ERROR_INVALID_INPUT";
    case INVALID_PROGRAM: return "NVRTC_ERROR_INVALID_PROGRAM";
    case INVALID_OPTION: return "NVRTC_ERROR_INVALID_OPTION";
    case COMPILATION: return "NVRTC_ERROR_COMPILATION";
    case INTERNAL_ERROR: return "NVRTC_ERROR_INTERNAL_ERROR";
    default: return "NVRTC_ERROR unknown";
    }
}

#endif
