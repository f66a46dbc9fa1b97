/* Events of the stand-in driver. */
#include "emu/driver_state.h"

static int event_exists(CUevent event)
{
    if (event != NULL && event->live) return 1;
    (void)driver_violate("use of an event that does not exist");
    return 0;
}

CUresult cuEventCreate(CUevent *event, unsigned flags)
{
    ENTER(cuEventCreate, IN_CONTEXT);
    struct CUevent_st *made = driver_make_handle(sizeof *made);
    if (made == NULL) return driver_leave(OUT_OF_MEMORY);
    made->live = 1;
    made->timed = (flags & CU_EVENT_DISABLE_TIMING) == 0;
    driver.live.events++;
    *event = made;
    return driver_leave(CUDA_SUCCESS);
}

CUresult cuEventDestroy(CUevent event)
{
    ENTER_RELEASE(cuEventDestroy, ANYWHERE);
    if (!event_exists(event)) return driver_leave(INVALID_HANDLE);
    event->live = 0;
    driver.live.events--;
    return driver_leave(entered);
}

CUresult cuEventRecord(CUevent event, CUstream stream)
{
    ENTER(cuEventRecord, IN_CONTEXT);
    if (!event_exists(event)) return driver_leave(INVALID_HANDLE);
    return driver_leave(driver_enqueue(stream, (operation){.kind = RECORD, .event = event}));
}

CUresult cuEventSynchronize(CUevent event)
{
    ENTER(cuEventSynchronize, IN_CONTEXT);
    if (!event_exists(event)) return driver_leave(INVALID_HANDLE);
    const unsigned target = event->recorded;
    while (event->done < target) pthread_cond_wait(&driver.changed, &driver.lock);
    return driver_leave_with_health();
}

CUresult cuEventQuery(CUevent event)
{
    ENTER(cuEventQuery, IN_CONTEXT | UNCAPTURED);
    if (!event_exists(event)) return driver_leave(INVALID_HANDLE);
    return driver_leave(event->done < event->recorded ? NOT_READY : CUDA_SUCCESS);
}

CUresult cuEventElapsedTime(float *milliseconds, CUevent start, CUevent end)
{
    ENTER(cuEventElapsedTime, IN_CONTEXT);
    if (!event_exists(start) || !event_exists(end)) return driver_leave(INVALID_HANDLE);
    if (!start->timed || !end->timed || start->recorded == 0 || end->recorded == 0)
        return driver_leave(INVALID_HANDLE);
    if (start->done < start->recorded || end->done < end->recorded) return driver_leave(NOT_READY);
    *milliseconds = (float)((end->when - start->when) * 1e3);
    return driver_leave(CUDA_SUCCESS);
}

CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned flags)
{
    ENTER(cuStreamWaitEvent, IN_CONTEXT);
    if (!event_exists(event) || flags != 0) return driver_leave(INVALID_HANDLE);
    return driver_leave(driver_enqueue(
        stream, (operation){.kind = WAIT, .event = event, .target = event->recorded}));
}
