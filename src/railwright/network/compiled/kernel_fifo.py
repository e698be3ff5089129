"""Chunks through FIFO links, compiled: the twin of `fifo_events.run`. Importing compiles or loads it.

Legend: F messages, A alternatives, E path entries, C chunks, B spreads, L directed links, S senders.
Self-contained: compiled code is cached by the text of the kernel files.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from railwright.network.compiled.kernel_cache import compiled


def _run(
    path_ptr: Any, path_link: Any, gap: Any, spread: Any, deal_ptr: Any, deal: Any, whole: Any, gate: Any,
    clock: Any, first_chunk: Any, size: Any, sender_ptr: Any, sender_message: Any, rate: Any, delay: Any,
    room: Any, packet: float, window: int, sent: bool,
) -> Any:  # fmt: skip
    """finish (F,), posted (F,), queue (L,), carried (L,); arguments as in `fifo_events`."""
    num_messages, num_chunks, num_links = len(first_chunk) - 1, len(size), len(rate)
    message = np.empty(num_chunks, np.int64)
    at, to = np.full(num_chunks, -1, np.int64), np.empty(num_chunks, np.int64)
    to_gate = np.empty(num_messages, np.int64)
    for f in range(num_messages):
        to_gate[f] = first_chunk[f + 1] - first_chunk[f]
        for c in range(first_chunk[f], first_chunk[f + 1]):
            message[c] = f
            to[c] = path_ptr[f]
    dealt = deal_ptr[:-1].copy()
    alternatives = path_ptr[num_messages]
    ends = np.zeros(len(path_link), np.bool_)
    for row in range(num_messages, len(path_ptr) - 1):
        ends[path_ptr[row + 1] - 1] = True
    to_start, to_finish = to_gate.copy(), to_gate.copy()
    finish, posted = np.full(num_messages, np.nan), np.full(num_messages, np.nan)
    latest = np.zeros(num_messages)
    num_senders = len(sender_ptr) - 1
    next_post = sender_ptr[:-1].copy()
    sender_of = np.zeros(num_messages, np.int64)
    for s in range(num_senders):
        for k in range(sender_ptr[s], sender_ptr[s + 1]):
            sender_of[sender_message[k]] = s

    # Chunks that wait for a link, links that wait for room before a link: first, last, next of each.
    head, tail = np.full(num_links, -1, np.int64), np.full(num_links, -1, np.int64)
    after = np.full(num_chunks, -1, np.int64)
    first_blocked, last_blocked = np.full(num_links, -1, np.int64), np.full(num_links, -1, np.int64)
    next_blocked = np.full(num_links, -1, np.int64)
    is_blocked = np.zeros(num_links, np.bool_)
    busy, held = np.zeros(num_links), np.zeros(num_links)
    queued, queue, carried = np.zeros(num_links), np.zeros(num_links), np.zeros(num_links)

    # A binary heap of events by (time, number); kinds: 0 arrive, 1 free, 2 post.
    capacity = 1024
    h_time, h_number = np.empty(capacity), np.empty(capacity, np.int64)
    h_kind, h_subject = np.empty(capacity, np.int8), np.empty(capacity, np.int64)
    h_chunk = np.empty(capacity, np.int64)
    h_size, number = 0, 0

    # Work found while one event is handled, put into the heap in the order it was found.
    n_new = 0
    new_time, new_kind = np.empty(64), np.empty(64, np.int8)
    new_subject, new_chunk = np.empty(64, np.int64), np.empty(64, np.int64)

    # Chunks to be queued and links to be tried during one event.
    start_window = min(window, num_chunks)
    turn, s_initial = 0, 0
    while True:
        initial = turn < start_window and num_senders > 0
        kind, subject, chunk, now = 2, -1, -1, 0.0
        if initial:
            subject = s_initial
            s_initial += 1
            if s_initial == num_senders:
                s_initial = 0
                turn += 1
        elif h_size > 0:
            now, kind, subject, chunk = h_time[0], h_kind[0], h_subject[0], h_chunk[0]
            h_size -= 1
            t, n = h_time[h_size], h_number[h_size]
            k_, s_, c_ = h_kind[h_size], h_subject[h_size], h_chunk[h_size]
            hole = 0
            while True:
                child = 2 * hole + 1
                if child >= h_size:
                    break
                if child + 1 < h_size and (
                    h_time[child + 1] < h_time[child]
                    or (h_time[child + 1] == h_time[child] and h_number[child + 1] < h_number[child])
                ):
                    child += 1
                if t < h_time[child] or (t == h_time[child] and n < h_number[child]):
                    break
                h_time[hole], h_number[hole] = h_time[child], h_number[child]
                h_kind[hole], h_subject[hole], h_chunk[hole] = h_kind[child], h_subject[child], h_chunk[child]
                hole = child
            h_time[hole], h_number[hole] = t, n
            h_kind[hole], h_subject[hole], h_chunk[hole] = k_, s_, c_
        else:
            break

        # What the event asks for: chunks [low, high) join their queues, or a link is tried and its waiters.
        low, high = 0, 0
        freed = -1
        if kind == 2:
            place = next_post[subject]
            if place < sender_ptr[subject + 1]:
                f = sender_message[place]
                next_post[subject] = place + 1
                posted[f] = now
                new_time[0], new_kind[0], new_subject[0], new_chunk[0] = now, 0, -1, first_chunk[f]
                n_new = 1
        elif kind == 0:
            at[chunk] = to[chunk]
            to[chunk] = -1
            if gate[at[chunk]]:
                f = message[chunk]
                to_gate[f] -= 1
                if to_gate[f] == 0:
                    low, high = first_chunk[f], first_chunk[f + 1]
            else:
                low, high = chunk, chunk + 1
        else:
            freed = subject
            if chunk >= 0:
                held[freed] -= size[chunk]

        joining = low
        tried = False
        while True:
            link = -1
            if joining < high:
                c = joining
                joining += 1
                link = path_link[at[c]]
                if head[link] < 0:
                    if busy[link] > now and room[link] == np.inf:
                        new_time[n_new], new_kind[n_new] = busy[link], 1
                        new_subject[n_new], new_chunk[n_new] = link, -1
                        n_new += 1
                    head[link] = c
                else:
                    after[tail[link]] = c
                tail[link] = c
                after[c] = -1
                queued[link] += size[c]
            elif freed >= 0 and not tried:
                link = freed
                tried = True
            elif freed >= 0 and first_blocked[freed] >= 0:
                other = first_blocked[freed]
                if held[freed] + size[head[other]] <= room[freed]:
                    first_blocked[freed] = next_blocked[other]
                    if first_blocked[freed] < 0:
                        last_blocked[freed] = -1
                    next_blocked[other] = -1
                    is_blocked[other] = False
                    link = other
            if link < 0 and n_new == 0:
                break

            if link >= 0 and head[link] >= 0 and busy[link] <= now and not is_blocked[link]:
                c = head[link]
                e = at[c]
                f = message[c]
                last = e + 1 == path_ptr[f + 1]
                onward = -1
                go = True
                if not last:
                    if to[c] < 0:
                        if e < alternatives and e + 1 == gap[f]:
                            to[c] = path_ptr[deal[dealt[spread[f]]]]
                            dealt[spread[f]] += 1
                        elif ends[e]:
                            to[c] = gap[f]
                        else:
                            to[c] = e + 1
                    onward = path_link[to[c]]
                    if room[onward] != np.inf:
                        if held[onward] + size[c] > room[onward]:
                            if first_blocked[onward] < 0:
                                first_blocked[onward] = link
                            else:
                                next_blocked[last_blocked[onward]] = link
                            last_blocked[onward] = link
                            next_blocked[link] = -1
                            is_blocked[link] = True
                            go = False
                        else:
                            held[onward] += size[c]
                if go:
                    head[link] = after[c]
                    if head[link] < 0:
                        tail[link] = -1
                    queued[link] -= size[c]
                    carried[link] += size[c]
                    end = now + size[c] / rate[link]
                    busy[link] = end
                    if room[link] != np.inf:
                        new_time[n_new], new_kind[n_new] = end, 1
                        new_subject[n_new], new_chunk[n_new] = link, c
                        n_new += 1
                    elif head[link] >= 0:
                        new_time[n_new], new_kind[n_new] = end, 1
                        new_subject[n_new], new_chunk[n_new] = link, -1
                        n_new += 1
                    if e == clock[f]:
                        to_start[f] -= 1
                        if to_start[f] > 0:
                            new_time[n_new], new_kind[n_new] = now, 0
                            new_subject[n_new], new_chunk[n_new] = -1, c + 1
                            n_new += 1
                        elif sent:
                            new_time[n_new], new_kind[n_new] = now, 2
                            new_subject[n_new], new_chunk[n_new] = sender_of[f], -1
                            n_new += 1
                    if last:
                        latest[f] = max(latest[f], end + delay[link])
                        to_finish[f] -= 1
                        if to_finish[f] == 0:
                            finish[f] = latest[f]
                            if not sent:
                                new_time[n_new], new_kind[n_new] = latest[f], 2
                                new_subject[n_new], new_chunk[n_new] = sender_of[f], -1
                                n_new += 1
                    else:
                        if whole[to[c]]:
                            then = end + delay[link]
                        else:
                            first = min(packet, size[c])
                            then = (
                                max(now + first / rate[link], end - (size[c] - first) / rate[onward])
                                + delay[link]
                            )
                        new_time[n_new], new_kind[n_new] = then, 0
                        new_subject[n_new], new_chunk[n_new] = -1, c
                        n_new += 1
            if link >= 0 and queued[link] > queue[link]:
                queue[link] = queued[link]

            if h_size + n_new > capacity:
                capacity *= 2
                wide_f = np.empty(capacity)
                wide_f[:h_size] = h_time[:h_size]
                h_time = wide_f
                wide_i = np.empty(capacity, np.int64)
                wide_i[:h_size] = h_number[:h_size]
                h_number = wide_i
                wide_i = np.empty(capacity, np.int64)
                wide_i[:h_size] = h_subject[:h_size]
                h_subject = wide_i
                wide_i = np.empty(capacity, np.int64)
                wide_i[:h_size] = h_chunk[:h_size]
                h_chunk = wide_i
                wide_k = np.empty(capacity, np.int8)
                wide_k[:h_size] = h_kind[:h_size]
                h_kind = wide_k
            for k in range(n_new):
                t = new_time[k]
                hole = h_size
                h_size += 1
                while hole > 0:
                    parent = (hole - 1) // 2
                    if h_time[parent] <= t:
                        break
                    h_time[hole], h_number[hole] = h_time[parent], h_number[parent]
                    h_kind[hole], h_subject[hole] = h_kind[parent], h_subject[parent]
                    h_chunk[hole] = h_chunk[parent]
                    hole = parent
                h_time[hole], h_number[hole] = t, number
                h_kind[hole], h_subject[hole], h_chunk[hole] = new_kind[k], new_subject[k], new_chunk[k]
                number += 1
            n_new = 0
            if link < 0:
                break
    return finish, posted, queue, carried


run = compiled(
    _run,
    "UniTuple(float64[::1], 4)(int64[::1], int32[::1], int64[::1], int64[::1], int64[::1], int64[::1], "
    "bool_[::1], bool_[::1], int64[::1], int64[::1], float64[::1], int64[::1], int64[::1], "
    "float64[::1], float64[::1], float64[::1], float64, int64, boolean)",
)
