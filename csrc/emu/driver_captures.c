/* Graphs of the stand-in driver: the operations of a captured stream, and the objects that live as
 * long. */
#include <stdlib.h>

#include "emu/driver_state.h"

CUresult cuStreamGetCaptureInfo(CUstream handle, int *state, unsigned long long *id, CUgraph *graph,
                                const CUgraphNode **dependencies, size_t *dependency_count)
{
    ENTER(cuStreamGetCaptureInfo, IN_CONTEXT);
    const struct CUstream_st *stream = driver_find_stream(handle);
    if (stream == NULL || dependencies != NULL || dependency_count != NULL)
        return driver_leave(INVALID_VALUE);
    *state = driver_capture_state(stream);
    if (*state != CAPTURE_ACTIVE) return driver_leave(CUDA_SUCCESS);
    *id = stream->graph->id;
    *graph = stream->graph;
    return driver_leave(CUDA_SUCCESS);
}

CUresult cuThreadExchangeStreamCaptureMode(int *mode)
{
    ENTER(cuThreadExchangeStreamCaptureMode, ANYWHERE);
    const int before = driver_thread.capture_mode;
    driver_thread.capture_mode = *mode;
    *mode = before;
    return driver_leave(CUDA_SUCCESS);
}

CUresult cuUserObjectCreate(CUuserObject *object, void *argument, CUhostFn destroy,
                            unsigned references, unsigned flags)
{
    ENTER(cuUserObjectCreate, ANYWHERE);
    struct CUuserObject_st *made = driver_make_handle(sizeof *made);
    if (made == NULL || references == 0 || flags != CU_USER_OBJECT_NO_DESTRUCTOR_SYNC)
        return driver_leave(INVALID_VALUE);
    *made = (struct CUuserObject_st){
        .references = references, .destroy = destroy, .argument = argument};
    *object = made;
    return driver_leave(CUDA_SUCCESS);
}

/* Calls the object's function with the last reference, not holding the lock, as the driver does
 * on a thread of its own. */
static void drop_object(CUuserObject object, unsigned count)
{
    object->references -= count;
    if (object->references > 0) return;
    pthread_mutex_unlock(&driver.lock);
    object->destroy(object->argument);
    pthread_mutex_lock(&driver.lock);
}

CUresult cuUserObjectRelease(CUuserObject object, unsigned count)
{
    ENTER_RELEASE(cuUserObjectRelease, ANYWHERE);
    if (object == NULL || object->references < count)
        return driver_leave(driver_violate("release of an object that is not held"));
    drop_object(object, count);
    return driver_leave(entered);
}

CUresult cuGraphRetainUserObject(CUgraph graph, CUuserObject object, unsigned count, unsigned flags)
{
    ENTER(cuGraphRetainUserObject, ANYWHERE);
    if (graph == NULL || !graph->live || count != 1 || flags != CU_GRAPH_USER_OBJECT_MOVE ||
        graph->object_count == driver.machine.objects)
        return driver_leave(INVALID_VALUE);
    graph->objects[graph->object_count++] = object;
    return driver_leave(CUDA_SUCCESS);
}

/* ---------------------------------------------------------------- for tests ------------------ */

/* From now on operations on the stream are not carried out but kept for the graph. */
GPR_API void fake_begin_capture(CUstream stream)
{
    pthread_mutex_lock(&driver.lock);
    struct CUgraph_st *graph = driver_make_handle(sizeof *graph);
    graph->live = 1;
    graph->id = ++driver.last_id;
    stream->graph = graph;
    driver.captures++;
    pthread_mutex_unlock(&driver.lock);
}

/* As a call that is not allowed while a stream is captured does. */
GPR_API void fake_break_capture(CUstream stream)
{
    pthread_mutex_lock(&driver.lock);
    stream->graph->is_broken = 1;
    pthread_mutex_unlock(&driver.lock);
}

GPR_API CUgraph fake_end_capture(CUstream stream)
{
    pthread_mutex_lock(&driver.lock);
    CUgraph graph = stream->graph;
    stream->graph = NULL;
    driver.captures--;
    pthread_mutex_unlock(&driver.lock);
    return graph;
}

/* Queues all of the graph on a stream. */
GPR_API int fake_launch_graph(CUgraph graph, CUstream stream)
{
    CUresult result = CUDA_SUCCESS;

    pthread_mutex_lock(&driver.lock);
    for (const operation *op = graph->head; op != NULL && result == CUDA_SUCCESS; op = op->next) {
        operation copy = *op;
        if (copy.kind == LAUNCH)
            result = engine_again(op->launch, &copy.launch) ? CUDA_SUCCESS : OUT_OF_MEMORY;
        if (result == CUDA_SUCCESS) result = driver_enqueue(stream, copy);
    }
    pthread_mutex_unlock(&driver.lock);
    return result;
}

GPR_API void fake_destroy_graph(CUgraph graph)
{
    pthread_mutex_lock(&driver.lock);
    driver_wait_until_idle();
    graph->live = 0;
    while (graph->head != NULL) {
        operation *op = graph->head;
        graph->head = op->next;
        if (op->kind == LAUNCH) engine_drop(op->launch);
        free(op);
    }
    for (int i = 0; i < graph->object_count; i++) drop_object(graph->objects[i], 1);
    pthread_mutex_unlock(&driver.lock);
}
