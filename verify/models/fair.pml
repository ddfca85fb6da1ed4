/* Direct grant in a queue whose waiters die: the fair mutex, lua/fair.
 *
 * A release grants the lock to the first live waiter and tells that waiter only.
 * The grant has a short lease, a heartbeat's. The message is a hint, upon which the
 * waiter asks, and only the answer lets it hold the lock (internal/waitqueue/wait.go: poll).
 * Heartbeats bring the hint whose message was lost, and any call of a waiter may hand
 * a free lock to the live head. Waiters die or give up at any step; messages and
 * answers are lost or late; entries vanish under waiters that were only slow; messages
 * are forged.
 *
 * When leases and trust end is lease.pml's matter. Here: a holder's lease ends
 * only when it trusts no more.
 *
 * Each guard can be taken out by its symbol; the checker must then find two
 * trusted holders, a waiter that waits for ever, or dead waiters that cost a
 * heartbeat each. The model is bounded and says something about the protocol, not
 * about the code.
 */
#define WAITERS 3
#define HOLDER WAITERS /* has the lock at the beginning */
#define ALL    (WAITERS + 1)
#define FREE   255

#define SLOW       1 /* how often one that lives is too slow, in all */
#define COPIES     1 /* late copies of enqueue, in all */
#define UNANSWERED 1 /* how many answers that carry a grant are lost, in all */
#define FORGED     1 /* messages that nobody of ours sent, in all */

bool two_holders, dead_cost_each; /* false: names of the errors */

byte owner = HOLDER;
byte queue[WAITERS]; /* redlatch:queue:{name}, in order */
byte length;
bool alive[ALL];     /* redlatch:alive:{name}: the heartbeat's end has not passed */
bool message[ALL];   /* "something became of you", on its way, or heard and not yet asked about */
byte slow = SLOW, copies = COPIES, unanswered = UNANSWERED, forged = FORGED;

mtype = { outside, waiting, holding, gone };
mtype state[ALL] = outside;
bool trusts[ALL];

bool dead_then[ALL]; /* was gone when the grant under way was made */
bool passed[ALL];    /* and its heartbeat has passed since */
bool deaf[ALL];      /* its heartbeat was answered and did not tell of the grant */

inline remove(w)
{
	i = 0; j = 0;
	do
	:: i < length ->
		if
		:: queue[i] == w -> skip
		:: else -> queue[j] = queue[i]; j++
		fi;
		i++
	:: else -> break
	od;
	length = j;
	do
	:: j < WAITERS -> queue[j] = 0; j++
	:: else -> break
	od;
	i = 0; j = 0
}

/* release, and the end of any other call: a free lock goes to the live head */
inline handOver()
{
	do
	:: owner == FREE && length > 0 ->
		h = queue[0];
		remove(h);
		if
#ifndef NO_ALIVE_CHECK
		:: !alive[h] -> skip /* its heartbeat has ended: pruned */
#endif
		:: else ->
			if /* the dead cost one heartbeat together */
			:: passed[h] -> assert(dead_cost_each)
			:: else -> skip
			fi;
			owner = h; deaf[h] = false;
			i = 0;
			do
			:: i < ALL -> dead_then[i] = (state[i] == gone); i++
			:: else -> break
			od;
			i = 0;
			if
			:: message[h] = true
			:: skip /* lost */
			fi
		fi;
		h = 0
	:: else -> break
	od
}

inline enqueue(w)
{
	if
	:: alive[w] = true; passed[w] = false;
		i = 0;
		do
		:: i < length && queue[i] != w -> i++
		:: else -> break
		od;
		if
		:: i == length && owner != w -> queue[length] = w; length++
		:: else -> skip /* a copy */
		fi;
		i = 0
	fi
}

inline free(w)
{
	if
	:: owner == w -> owner = FREE
	:: else -> skip /* not this acquisition's */
	fi
}

proctype Waiter(byte w)
{
	byte i, j, h;
	if
	:: w == HOLDER -> goto held
	:: else -> skip
	fi;
	atomic { state[w] = waiting; enqueue(w);
#ifndef NO_HELP
		handOver()
#endif
	};
	do
	:: atomic { message[w] -> message[w] = false;
#ifdef BELIEVES_MESSAGE
			state[w] = holding; trusts[w] = true; break
#else
			/* asks: the call that proves the lock its own, and takes it for a lease */
			if
			:: owner == w -> state[w] = holding; trusts[w] = true; break
			:: owner == w && unanswered > 0 -> unanswered--; message[w] = true /* asks again */
			:: else -> skip
			fi
#endif
		}
	/* the heartbeat, in the watchdog's batch; while a hint stands, it brings nothing new */
	:: atomic { state[w] == waiting && !message[w] ->
			if
#ifndef NO_REQUEUE
			:: owner != w -> enqueue(w)
#endif
			:: else -> skip
			fi;
#ifndef NO_HELP
			handOver();
#endif
			if
#ifdef NO_GRANT_IN_HEARTBEAT
			:: owner == w -> deaf[w] = true
#else
			:: owner == w -> message[w] = true /* takes nothing: a hint, too */
			:: owner == w && unanswered > 0 -> unanswered--
#endif
			:: else -> skip
			fi }
	:: atomic { remove(w); free(w); handOver(); state[w] = gone }; goto end /* gives up */
	:: atomic { state[w] = gone }; goto end                                /* dies */
	od;
held:
	if
	:: w == HOLDER -> atomic { state[w] = holding; trusts[w] = (owner == w) }
	:: else -> skip
	fi;
	if
	:: trusts[w] = false; atomic { free(w); handOver(); state[w] = gone } /* Unlock */
	:: atomic { trusts[w] = false; state[w] = gone }                      /* dies */
	:: atomic { slow > 0 -> slow--; trusts[w] = false; state[w] = gone }  /* loses it */
	fi;
end:	skip
}

/* What ends by itself, and what comes late. */
active proctype Time()
{
	byte i, j, h;
end:	do
	/* A lease ends: of one that is gone; of one that was slow; and of a grant
	 * that its waiter was never told of. */
	:: atomic { owner != FREE && !trusts[owner] && (state[owner] == gone || deaf[owner]) ->
		owner = FREE;
		i = 0;
		do /* a heartbeat has passed since the grant */
		:: i < ALL && dead_then[i] -> alive[i] = false; passed[i] = true; i++
		:: i < ALL && !dead_then[i] -> i++
		:: else -> break
		od;
		i = 0 }
	:: atomic { owner != FREE && !trusts[owner] && state[owner] == waiting && slow > 0 -> slow--; owner = FREE }
	:: atomic { slow > 0 && length > 0 -> slow--; h = queue[0]; remove(h); h = 0 } /* an entry vanishes */
	:: atomic { alive[0] && state[0] == gone -> alive[0] = false }
	:: atomic { alive[1] && state[1] == gone -> alive[1] = false }
	:: atomic { alive[2] && state[2] == gone -> alive[2] = false }
	:: atomic { forged > 0 && state[1] == waiting -> forged--; message[1] = true }
	:: atomic { copies > 0 && state[0] != outside -> copies--; enqueue(0) }
	:: atomic { copies > 0 && state[1] != outside -> copies--; enqueue(1) }
	od
}

init { atomic { byte w; for (w : 0 .. WAITERS) { run Waiter(w) } } }

active proctype Monitor()
{
end:	atomic { trusts[0] + trusts[1] + trusts[2] + trusts[3] > 1 -> assert(two_holders) }
}

ltl served { [] (state[1] == waiting -> <> (state[1] != waiting)) }
