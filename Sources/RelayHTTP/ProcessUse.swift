// What this process uses of the machine, from the kernel.
import Glibc

/// Memory and processor of a process.
public struct ProcessUse: Sendable, Equatable {
    /// Bytes that are in RAM.
    public var residentBytes: Int
    /// Processor time since the start, the kernel's for it included.
    public var cpu: Duration

    /// What a process is said to use.
    public init(residentBytes: Int, cpu: Duration) {
        self.residentBytes = residentBytes
        self.cpu = cpu
    }

    /// This process, now; nil where the kernel does not say (no /proc).
    public static func own() -> ProcessUse? {
        var usage = rusage()
        guard getrusage(__rusage_who_t(RUSAGE_SELF.rawValue), &usage) == 0 else { return nil }
        let cpu =
            Duration.seconds(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec)
            + .microseconds(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec)
        let descriptor = open("/proc/self/statm", O_RDONLY | O_CLOEXEC)
        guard descriptor >= 0 else { return nil }
        defer { close(descriptor) }
        var buffer = [UInt8](repeating: 0, count: 128)
        let count = read(descriptor, &buffer, buffer.count)
        guard count > 0 else { return nil }
        // The second number: resident pages (proc_pid_statm(5)).
        let fields = buffer.prefix(count).split(separator: UInt8(ascii: " "))
        guard fields.count > 1, let pages = Int(String(decoding: fields[1], as: UTF8.self)) else { return nil }
        return ProcessUse(residentBytes: pages * Int(getpagesize()), cpu: cpu)
    }
}
