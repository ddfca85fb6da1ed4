/* The wake protocol: a waiter subscribes, waits for the confirmation, asks once
 * more, and then sleeps until a wake, the poll bound, or the end of the holder's
 * lease.
 *
 * Faults: messages are lost, a subscriber's connection is cut and the client
 * notices later, holders die without a word. RELIABLE leaves the first out, to
 * show what stands without polling.
 *
 * Each guard can be taken out by its symbol; the checker must then find a waiter
 * that waits for ever for a lock that is free. The model is bounded and says
 * something about the protocol, not about the code.
 */
#define WAITERS 2
#define TURNS   1 /* how often others take the lock again, in all */
#define CUTS    2 /* connections cut, in all */

#define HOLDER WAITERS
#define FREE   255

byte owner = HOLDER; /* the lock's hash in Redis */
bool expired;        /* it became free by the end of a lease: nothing was published */
byte cuts = CUTS;
byte finished;

mtype = { up, cut, down };

bool wanted[WAITERS];     /* client: the channel is asked for */
mtype line[WAITERS] = up; /* client's connection: up, cut and not noticed yet, known to be down */
bool subscribed[WAITERS]; /* server */
bool live[WAITERS];       /* client: the server has confirmed */
bool message[WAITERS];    /* on its way to the client */
bool woken[WAITERS];      /* Subscription.wakes: wakes merge into one */
bool waits[WAITERS];
bool got[WAITERS];

/* release.lua, PUBLISH: one script, so all of it is one step. Those who are not
 * subscribed at this moment never hear of it. */
inline publish(i)
{
	i = 0;
	do
	:: i < WAITERS ->
		if
		:: subscribed[i] -> message[i] = true
#ifndef RELIABLE
		:: subscribed[i] -> skip /* lost */
#endif
		:: else -> skip
		fi;
		i++
	:: else -> break
	od;
	i = 0
}

/* The one who has the lock, and others like it who are faster than the waiters. */
active proctype Holder()
{
	byte turns = TURNS, i;
	do
	:: atomic { owner == HOLDER -> owner = FREE; expired = false; publish(i) } /* release.lua */
	:: atomic { owner == HOLDER -> owner = FREE; expired = true }              /* it died, the lease has ended */
	:: atomic { owner == FREE && turns > 0 -> owner = HOLDER; turns-- }        /* acquire.lua */
	:: finished == WAITERS -> break
	od
}

/* reentrant/wait.go contend and reentrant/poller.go */
proctype Waiter(byte w)
{
	byte i;
	waits[w] = true;
	if /* contend: w.ask */
	:: atomic { owner == FREE -> owner = w; goto granted }
	:: owner != FREE -> skip
	fi;

	wanted[w] = true; /* poller.wait: localQueue.subscription, Hub.Subscribe */
	if                /* poller.awaitSubscribed: Subscription.Ready */
	:: live[w] -> skip
	:: line[w] == down -> skip
#ifndef NO_POLL
	:: true -> skip /* the bound of confirmed */
#endif
	fi;
	woken[w] = false; /* Ready takes the wakes that came before */
#ifdef NO_SECOND_LOOK
	goto sleep;
#endif
ask:
	if /* contend: w.ask, once more */
	:: atomic { owner == FREE -> owner = w; goto granted }
	:: owner != FREE -> skip
	fi;
sleep:
	if /* poller.sleep */
	:: woken[w] -> woken[w] = false /* <-wakes */
#ifndef NO_POLL
	:: true -> skip /* <-timer.C at the poll bound */
#endif
#ifndef NO_LEASE_END
	/* <-timer.C at the end of the holder's lease (poller.sleepTime). It would fire
	 * after a release as well; a lease late, which does not count here. */
	:: owner == FREE && expired -> skip
#endif
	fi;
	goto ask;

granted:
	got[w] = true;
	atomic { owner = FREE; expired = false; publish(i); finished++ } /* Unlock */
}

/* The waiter's pub/sub connection at both ends: internal/pubsub. */
proctype Link(byte w)
{
	bool again; /* it was confirmed before */
	do
	:: wanted[w] && line[w] == up && !subscribed[w] -> subscribed[w] = true /* plan.go next: SUBSCRIBE */
	:: atomic { subscribed[w] && !live[w] ->                                /* answers.go: the confirmation */
		live[w] = true;
		if
#ifdef NO_LOOK_AFTER_RESUBSCRIBE
		:: again -> skip
#endif
		:: else -> woken[w] = true /* channel.tell */
		fi;
		again = true }
	:: atomic { message[w] -> message[w] = false; woken[w] = true } /* answers.go: a message */
	:: atomic { line[w] == up && cuts > 0 ->                        /* the server knows, the client does not */
		cuts--; line[w] = cut; subscribed[w] = false; message[w] = false }
	:: atomic { line[w] == cut -> line[w] = down; live[w] = false   /* registry.lost, by an unanswered ping */
#ifndef NO_LOOK_AFTER_RESUBSCRIBE
		; woken[w] = true
#endif
		}
	:: line[w] == down -> line[w] = up
	:: finished == WAITERS -> break
	od
}

init { atomic { byte w; for (w : 0 .. WAITERS - 1) { run Waiter(w); run Link(w) } } }

/* Holders end, so a waiter gets the lock. */
ltl served { [] (waits[0] -> <> got[0]) }
