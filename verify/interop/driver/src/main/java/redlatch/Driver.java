package redlatch;

import java.io.BufferedReader;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Instant;
import java.time.temporal.ChronoUnit;
import java.util.Arrays;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;

import org.redisson.Redisson;
import org.redisson.api.RBucket;
import org.redisson.api.RLock;
import org.redisson.api.RObject;
import org.redisson.api.RedissonClient;
import org.redisson.client.codec.StringCodec;
import org.redisson.config.Config;
import org.redisson.config.NameMapper;
import org.redisson.config.ReadMode;
import org.redisson.config.ShardedSubscriptionMode;

/**
 * Lets another process use Redisson, over lines on standard input and output:
 *
 * <pre>
 *   number thread client verb argument...
 *   number begun ended ok value
 *   number begun ended error class message
 * </pre>
 *
 * A lock belongs to a thread, so each named thread is a real one, and does one thing after another. Begun and ended are
 * microseconds since 1970. The process ends with its input, so that it never outlives whoever started it.
 */
public final class Driver {
    private final Map<String, RedissonClient> clients = new ConcurrentHashMap<>();
    private final Map<String, ExecutorService> threads = new ConcurrentHashMap<>();
    private final Set<String> stopped = ConcurrentHashMap.newKeySet();
    private final Map<String, Long> longestMillis = new ConcurrentHashMap<>(); // waits, by client
    private final PrintStream out = new PrintStream(new FileOutputStream(FileDescriptor.out), true, StandardCharsets.UTF_8);

    public static void main(String[] ignored) throws Exception {
        Driver driver = new Driver();
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            driver.accept(line.split(" "));
        }
        Runtime.getRuntime().halt(0); // no farewells: who wants them says close
    }

    private void accept(String[] words) {
        ExecutorService thread = threads.computeIfAbsent(words[1], name -> Executors.newSingleThreadExecutor());
        thread.execute(() -> {
            long begun = micros();
            String outcome;
            try {
                outcome = "ok " + run(words[2], words[3], Arrays.copyOfRange(words, 4, words.length));
            } catch (Throwable e) {
                outcome = "error " + e.getClass().getSimpleName() + " " + String.valueOf(e.getMessage()).replace('\n', ' ');
            }
            out.println(words[0] + " " + begun + " " + micros() + " " + outcome);
        });
    }

    private static long micros() {
        return ChronoUnit.MICROS.between(Instant.EPOCH, Instant.now());
    }

    private Object run(String client, String verb, String[] args) throws Exception {
        if (verb.equals("open")) {
            clients.put(client, open(args[0], args[1].split(","), Long.parseLong(args[2]), args[3],
                args.length > 4 ? args[4] : ""));
            return "";
        }
        RedissonClient redisson = clients.get(client);
        if (verb.equals("close")) {
            clients.remove(client).shutdown();
            return "";
        }
        if (verb.equals("me")) {
            return redisson.getId() + ":" + Thread.currentThread().getId();
        }
        if (verb.startsWith("semaphore.") || verb.startsWith("permits.") || verb.startsWith("latch.")) {
            return counted(redisson, verb, args);
        }
        if (verb.startsWith("fenced.")) {
            return fenced(redisson, verb, args);
        }
        if (verb.equals("stop")) {
            return stopped.add(client);
        }
        if (verb.equals("longest")) {
            return longestMillis.getOrDefault(client, 0L);
        }
        if (verb.equals("cycles")) {
            return cycles(client, lock(redisson, args[0], args[1]), Long.parseLong(args[2]), Long.parseLong(args[3]));
        }
        return locking(redisson, verb, lock(redisson, args[0], args[1]), args);
    }

    private static RedissonClient open(String mode, String[] addresses, long watchdogMillis, String sharded,
        String prefix) {
        Config config = new Config();
        config.setLockWatchdogTimeout(watchdogMillis).setNettyThreads(4).setThreads(8);
        if (!prefix.isEmpty()) { // a service that is set up differently: a prefix, and a codec of its own
            config.setNameMapper(new Prefix(prefix)).setCodec(StringCodec.INSTANCE);
        }
        switch (mode) {
            case "single" -> config.useSingleServer().setAddress(addresses[0])
                .setConnectionMinimumIdleSize(1).setSubscriptionConnectionMinimumIdleSize(1);
            case "cluster" -> config.useClusterServers().addNodeAddress(addresses).setReadMode(ReadMode.MASTER)
                .setShardedSubscriptionMode(ShardedSubscriptionMode.valueOf(sharded))
                .setMasterConnectionMinimumIdleSize(1).setSubscriptionConnectionMinimumIdleSize(1);
            case "sentinel" -> config.useSentinelServers().setMasterName("primary").addSentinelAddress(addresses)
                .setReadMode(ReadMode.MASTER).setCheckSentinelsList(false).setScanInterval(200)
                .setMasterConnectionMinimumIdleSize(1).setSubscriptionConnectionMinimumIdleSize(1);
            default -> throw new IllegalArgumentException(mode);
        }
        return Redisson.create(config);
    }

    private record Prefix(String text) implements NameMapper {
        @Override
        public String map(String name) {
            return text + name;
        }

        @Override
        public String unmap(String name) {
            return name.substring(text.length());
        }
    }

    private static RLock lock(RedissonClient redisson, String kind, String name) {
        return switch (kind) {
            case "lock" -> redisson.getLock(name);
            case "fenced" -> redisson.getFencedLock(name);
            case "fair" -> redisson.getFairLock(name);
            case "spin" -> redisson.getSpinLock(name);
            case "nonreentrant" -> redisson.getNonReentrantLock(name);
            case "read" -> redisson.getReadWriteLock(name).readLock();
            case "write" -> redisson.getReadWriteLock(name).writeLock();
            case "multi" -> redisson.getMultiLock(
                Arrays.stream(name.split(",")).map(redisson::getLock).toArray(RLock[]::new));
            default -> throw new IllegalArgumentException(kind);
        };
    }

    private static Object locking(RedissonClient redisson, String verb, RLock lock, String[] args) throws Exception {
        switch (verb) {
            case "lock" -> lock.lock(Long.parseLong(args[2]), TimeUnit.MILLISECONDS); // -1: the watchdog renews it
            case "try" -> {
                return lock.tryLock();
            }
            case "trywait" -> {
                return lock.tryLock(Long.parseLong(args[2]), Long.parseLong(args[3]), TimeUnit.MILLISECONDS);
            }
            case "unlock" -> lock.unlock();
            case "force" -> {
                return lock.forceUnlock();
            }
            case "locked" -> {
                return lock.isLocked();
            }
            case "holds" -> {
                return lock.getHoldCount();
            }
            case "mine" -> {
                return lock.isHeldByCurrentThread();
            }
            case "ttl" -> {
                return lock.remainTimeToLive();
            }
            case "turns" -> {
                return turns(lock, redisson.getBucket(args[2], StringCodec.INSTANCE), Long.parseLong(args[3]));
            }
            default -> throw new IllegalArgumentException(verb);
        }
        return "";
    }

    /** Counts up to total, together with others, guarded by nothing but the lock. Returns how often it was its turn. */
    private static long turns(RLock lock, RBucket<String> counter, long total) {
        for (long mine = 0;; mine++) {
            lock.lock();
            try {
                long n = Long.parseLong(counter.get());
                if (n >= total) {
                    return mine;
                }
                counter.set(Long.toString(n + 1));
            } finally {
                lock.unlock();
            }
        }
    }

    /**
     * Locks, holds and unlocks so many times, or until somebody stops the client. Returns how many times, and notes
     * the longest wait of the client.
     */
    private long cycles(String client, RLock lock, long holdMillis, long most) throws InterruptedException {
        long mine = 0;
        while (mine < most && !stopped.contains(client)) {
            long begun = System.nanoTime();
            lock.lock();
            longestMillis.merge(client, (System.nanoTime() - begun) / 1_000_000, Math::max);
            try {
                Thread.sleep(holdMillis);
            } finally {
                lock.unlock();
            }
            mine++;
        }
        return mine;
    }

    private static Object fenced(RedissonClient redisson, String verb, String[] args) {
        var lock = redisson.getFencedLock(args[0]);
        return switch (verb) {
            case "fenced.lock" -> lock.lockAndGetToken();
            case "fenced.trylock" -> lock.tryLockAndGetToken();
            case "fenced.token" -> lock.getToken();
            case "fenced.delete" -> ((RObject) lock).delete(); // the interface of the lock has no delete
            default -> throw new IllegalArgumentException(verb);
        };
    }

    private static Object counted(RedissonClient redisson, String verb, String[] args) throws Exception {
        int n = args.length > 1 ? Integer.parseInt(args[1]) : 1;
        switch (verb) {
            case "semaphore.set" -> {
                return redisson.getSemaphore(args[0]).trySetPermits(n);
            }
            case "semaphore.try" -> {
                return redisson.getSemaphore(args[0]).tryAcquire(n);
            }
            case "semaphore.release" -> redisson.getSemaphore(args[0]).release(n);
            case "permits.set" -> {
                return redisson.getPermitExpirableSemaphore(args[0]).trySetPermits(n);
            }
            case "permits.try" -> {
                return redisson.getPermitExpirableSemaphore(args[0]).tryAcquire();
            }
            case "latch.set" -> {
                return redisson.getCountDownLatch(args[0]).trySetCount(n);
            }
            case "latch.down" -> redisson.getCountDownLatch(args[0]).countDown();
            default -> throw new IllegalArgumentException(verb);
        }
        return "";
    }
}
