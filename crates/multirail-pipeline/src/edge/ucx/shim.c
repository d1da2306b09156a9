/* The little of UCX that an edge needs, with flat types: UCP's parameters are structures full of masks and macros, which C writes best. */
#include <stdlib.h>
#include <string.h>
#include <ucp/api/ucp.h>

/* A receive that has not begun ends at once. */
#define CANCEL_ROUNDS 1000

struct mr_ucx {
    ucp_context_h context;
    ucp_worker_h worker;
    ucp_ep_h ep;
    ucp_address_t *address;
    size_t address_bytes;
    ucs_status_t failed;
    int heeds_death;
};

static void on_failure(void *arg, ucp_ep_h ep, ucs_status_t status) {
    (void)ep;
    ((struct mr_ucx *)arg)->failed = status;
}

void mr_ucx_close(struct mr_ucx *u) {
    /* Where UCX does not heed a peer's death it does not force an endpoint closed either: it goes with its worker. */
    if (u->ep && u->heeds_death) {
        ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS, .flags = UCP_EP_CLOSE_FLAG_FORCE};
        void *request = ucp_ep_close_nbx(u->ep, &param);
        if (UCS_PTR_IS_PTR(request)) {
            while (ucp_request_check_status(request) == UCS_INPROGRESS)
                ucp_worker_progress(u->worker);
            ucp_request_free(request);
        }
    }
    if (u->address)
        ucp_worker_release_address(u->worker, u->address);
    if (u->worker)
        ucp_worker_destroy(u->worker);
    if (u->context)
        ucp_cleanup(u->context);
    free(u);
}

/* 0, or a status below it; what is opened so far is closed again then. */
int mr_ucx_open(struct mr_ucx **out, const void **address, size_t *address_bytes, int *event_fd) {
    struct mr_ucx *u = calloc(1, sizeof *u);
    if (!u)
        return UCS_ERR_NO_MEMORY;
    ucp_params_t params = {.field_mask = UCP_PARAM_FIELD_FEATURES, .features = UCP_FEATURE_TAG | UCP_FEATURE_WAKEUP};
    ucp_config_t *config = NULL;
    ucs_status_t status = ucp_config_read(NULL, NULL, &config);
    if (status == UCS_OK) {
        status = ucp_init(&params, config, &u->context);
        ucp_config_release(config);
    }
    if (status == UCS_OK) {
        ucp_worker_params_t worker = {.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE, .thread_mode = UCS_THREAD_MODE_SERIALIZED};
        status = ucp_worker_create(u->context, &worker, &u->worker);
    }
    if (status == UCS_OK)
        status = ucp_worker_get_address(u->worker, &u->address, &u->address_bytes);
    if (status == UCS_OK)
        status = ucp_worker_get_efd(u->worker, event_fd);
    if (status != UCS_OK) {
        mr_ucx_close(u);
        return status;
    }
    *out = u;
    *address = u->address;
    *address_bytes = u->address_bytes;
    return 0;
}

/* `heeds_death`: has UCX itself notice a peer that dies. */
int mr_ucx_connect(struct mr_ucx *u, const void *address, int heeds_death) {
    u->heeds_death = heeds_death;
    ucp_ep_params_t params = {
        .field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE | UCP_EP_PARAM_FIELD_ERR_HANDLER,
        .address = address,
        .err_mode = heeds_death ? UCP_ERR_HANDLING_MODE_PEER : UCP_ERR_HANDLING_MODE_NONE,
        .err_handler = {.cb = on_failure, .arg = u},
    };
    return ucp_ep_create(u->worker, &params, &u->ep);
}

unsigned mr_ucx_progress(struct mr_ucx *u) { return ucp_worker_progress(u->worker); }

int mr_ucx_failed(const struct mr_ucx *u) { return u->failed; }

/* 0: armed; else there is something to do. */
int mr_ucx_arm(struct mr_ucx *u) { return ucp_worker_arm(u->worker); }

/* 0: done; 1: `*request` goes on with `data`; below 0: failed. */
int mr_ucx_send(struct mr_ucx *u, const void *data, size_t bytes, uint64_t tag, void **request) {
    ucp_request_param_t param = {0};
    ucs_status_ptr_t sent = ucp_tag_send_nbx(u->ep, data, bytes, tag, &param);
    if (UCS_PTR_IS_ERR(sent))
        return UCS_PTR_STATUS(sent);
    *request = sent;
    return sent != NULL;
}

/* Never done at once: only a request tells the length of what has come. */
int mr_ucx_receive(struct mr_ucx *u, void *into, size_t bytes, uint64_t tag, void **request) {
    ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FLAG_NO_IMM_CMPL};
    ucs_status_ptr_t posted = ucp_tag_recv_nbx(u->worker, into, bytes, tag, UINT64_MAX, &param);
    if (UCS_PTR_IS_ERR(posted))
        return UCS_PTR_STATUS(posted);
    *request = posted;
    return 1;
}

/* 0: done, and the request is gone; 1: goes on; below 0: failed, and gone. */
int mr_ucx_sent(void *request) {
    ucs_status_t status = ucp_request_check_status(request);
    if (status == UCS_INPROGRESS)
        return 1;
    ucp_request_free(request);
    return status;
}

int mr_ucx_received(void *request, size_t *got) {
    ucp_tag_recv_info_t info = {0};
    ucs_status_t status = ucp_tag_recv_request_test(request, &info);
    if (status == UCS_INPROGRESS)
        return 1;
    ucp_request_free(request);
    *got = info.length;
    return status;
}

/* Cancels a request, so that its buffer is not accessed any more. Returns 1 if that would wait for a
 * peer that may be dead; the buffer must then stay. */
int mr_ucx_cancel(struct mr_ucx *u, void *request) {
    ucp_request_cancel(u->worker, request);
    for (int i = 0; i < CANCEL_ROUNDS && ucp_request_check_status(request) == UCS_INPROGRESS; i++)
        ucp_worker_progress(u->worker);
    int goes_on = ucp_request_check_status(request) == UCS_INPROGRESS;
    ucp_request_free(request);
    return goes_on;
}

const char *mr_ucx_text(int status) { return ucs_status_string(status); }
