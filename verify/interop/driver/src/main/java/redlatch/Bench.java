package redlatch;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.management.ManagementFactory;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;

import com.sun.management.OperatingSystemMXBean;

import org.redisson.Redisson;
import org.redisson.api.RLock;
import org.redisson.api.RPermitExpirableSemaphore;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;

/**
 * Measures Redisson as the Go program in benchmarks/ measures the others: the same cell, each field an argument
 * Field=value, the same lines with whoever started it ("ready", told to go, "begin", "end"), and the same result as JSON.
 */
public final class Bench {
    private static final long LEASE_SECONDS = 30;

    private final Map<String, String> cell = new HashMap<>();
    private final String kind;
    private final List<RedissonClient> clients = new ArrayList<>();
    private final AtomicLong unlocked = new AtomicLong();
    private volatile boolean counts;
    private long end;

    private Bench(String[] fields) {
        for (String field : fields) {
            int at = field.indexOf('=');
            cell.put(field.substring(0, at), field.substring(at + 1));
        }
        kind = cell.get("Library");
    }

    public static void main(String[] args) throws Exception {
        Bench bench = new Bench(args);
        for (int i = 0; i < bench.number("Clients"); i++) {
            bench.clients.add(bench.open());
        }
        System.out.println("ready");
        if (new BufferedReader(new InputStreamReader(System.in)).readLine() == null) {
            return; // who started it has gone
        }
        System.out.println(bench.measure());
        System.out.flush();
        Runtime.getRuntime().halt(0); // no farewells: the server is flushed anyway
    }

    private int number(String field) {
        return Integer.parseInt(cell.get(field));
    }

    private long nanos(String field) {
        return Long.parseLong(cell.get(field));
    }

    private RedissonClient open() {
        Config config = new Config();
        List<String> addresses = new ArrayList<>();
        for (String address : cell.get("Addrs").split(",")) {
            addresses.add("redis://" + address);
        }
        if (cell.get("Cluster").equals("true")) {
            config.useClusterServers().addNodeAddress(addresses.toArray(new String[0]));
        } else {
            config.useSingleServer().setAddress(addresses.get(0));
        }
        return Redisson.create(config);
    }

    private String measure() throws Exception {
        long warm = nanos("Warm");
        long measured = nanos("Measure");
        long start = System.nanoTime();
        end = start + warm + measured;
        List<Worker> workers = new ArrayList<>();
        for (int i = 0; i < number("Goroutines"); i++) {
            Worker w = new Worker(clients.get(i % clients.size()), name(i), start);
            workers.add(w);
            w.start();
        }
        TimeUnit.NANOSECONDS.sleep(warm);
        System.out.println("begin");
        OperatingSystemMXBean os = (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
        long cpu = os.getProcessCpuTime();
        long begun = System.nanoTime();
        counts = true;
        TimeUnit.NANOSECONDS.sleep(end - System.nanoTime());
        counts = false;
        cpu = os.getProcessCpuTime() - cpu;
        long elapsed = System.nanoTime() - begun;
        System.out.println("end");
        List<Integer> turns = new ArrayList<>();
        List<Long> waits = new ArrayList<>();
        List<Long> unmet = new ArrayList<>();
        List<Long> handed = new ArrayList<>();
        for (Worker w : workers) {
            w.join();
            if (w.failure != null) {
                throw new IllegalStateException(w.failure);
            }
            turns.add(w.waits.size());
            waits.addAll(w.waits);
            handed.addAll(w.handed);
            if (w.unmet > 0) {
                unmet.add(w.unmet);
            }
        }
        // Lists of numbers are written as JSON writes them.
        return "{\"Turns\":" + turns + ",\"Waits\":" + waits + ",\"Unmet\":" + unmet + ",\"Handed\":" + handed
            + ",\"Elapsed\":" + elapsed + ",\"CPU\":" + cpu + "}";
    }

    private String name(int i) {
        return switch (number("Names")) {
            case 0 -> "bench:" + number("Process") + ":" + i;
            case 1 -> "bench";
            default -> "bench:" + i % number("Names");
        };
    }

    private final class Worker extends Thread {
        private final RedissonClient client;
        private final String name;
        private final long start;
        private final List<Long> waits = new ArrayList<>();
        private final List<Long> handed = new ArrayList<>();
        private long unmet;
        private Exception failure;

        Worker(RedissonClient client, String name, long start) {
            this.client = client;
            this.name = name;
            this.start = start;
        }

        @Override
        public void run() {
            try {
                work();
            } catch (Exception e) {
                failure = e;
            }
        }

        private void work() throws Exception {
            if (kind.equals("RPermitExpirableSemaphore")) {
                client.getPermitExpirableSemaphore(name).trySetPermits(Math.max(1, number("Permits")));
            }
            for (long asked = System.nanoTime(); asked < end; asked = System.nanoTime()) {
                Runnable unlock = lock(end - asked);
                long got = System.nanoTime();
                if (unlock == null) {
                    unmet = (got - asked) / 1000;
                    return;
                }
                long since = unlocked.get();
                TimeUnit.NANOSECONDS.sleep(nanos("Hold"));
                unlocked.set(System.nanoTime() - start);
                unlock.run();
                if (!counts) {
                    continue;
                }
                waits.add((got - asked) / 1000);
                if (number("Names") == 1 && since > 0) {
                    handed.add((got - start - since) / 1000);
                }
            }
        }

        /** Waits so long at most; null when the lock was not there by then. */
        private Runnable lock(long nanos) throws InterruptedException {
            long millis = Math.max(1, TimeUnit.NANOSECONDS.toMillis(nanos));
            if (kind.equals("RPermitExpirableSemaphore")) {
                RPermitExpirableSemaphore semaphore = client.getPermitExpirableSemaphore(name);
                String permit = semaphore.tryAcquire(millis, LEASE_SECONDS * 1000, TimeUnit.MILLISECONDS);
                return permit == null ? null : () -> semaphore.release(permit);
            }
            RLock lock = kind.equals("RFairLock") ? client.getFairLock(name) : client.getLock(name);
            return lock.tryLock(millis, TimeUnit.MILLISECONDS) ? lock::unlock : null;
        }
    }
}
