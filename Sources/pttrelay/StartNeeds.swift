// What the connections of a relay need of the machine: memory, and a descriptor for each link over TLS.
import Files
import Glibc
import Logging

/// What a relay that takes so many connections needs.
struct StartNeeds: Equatable {
    /// Resident memory of a connected member, in bytes (docs/benchmarks.md, "members").
    static let connectionBytes = 45_000
    /// Descriptors besides those of links over TLS: sockets, files, the page, the push endpoint.
    static let otherDescriptors = 256
    /// The most connections that a relay takes unless the configuration says more…
    static let standardConnectionsMaximum = 20_000
    /// …and the fewest, however small the machine is.
    static let standardConnectionsMinimum = 2_048

    var connections: Int
    /// What is kept of bursts, in bytes.
    var keptBytes: Int
    /// Links over TLS count as connections, and each needs a descriptor. QUIC's need none.
    var hasLinks: Bool
    /// Links may be passed on to other relays of a cluster, which takes a second descriptor.
    var mayPassOn = false

    /// Bytes of memory if all connections are taken.
    var memory: Int { connections * Self.connectionBytes + keptBytes }
    /// Descriptors, if all connections are links over TLS.
    var descriptors: Int { Self.otherDescriptors + (hasLinks ? connections * (mayPassOn ? 2 : 1) : 0) }

    /// As many connections as suit a machine with so much memory: half of it is for other things. Nil: not known.
    static func standardConnections(memory: Int?) -> Int {
        guard let memory else { return standardConnectionsMinimum }
        return min(max(memory / 2 / connectionBytes, standardConnectionsMinimum), standardConnectionsMaximum)
    }

    /// Sentences about what is missing where there are `memory` bytes and `descriptors`; nil: not known.
    func problems(memory: Int?, descriptors: Int?) -> [String] {
        var sentences: [String] = []
        if let memory, memory < self.memory {
            sentences.append(
                "[limits] allows \(connections) connections, which take up to \(Self.megabytes(self.memory)) MB, but the relay "
                    + "may use \(Self.megabytes(memory)) MB: lower 'connections' or 'keep-megabytes', or give it more memory"
            )
        }
        if let descriptors, descriptors < self.descriptors {
            sentences.append(
                "[limits] allows \(connections) connections, and each link over TLS needs \(mayPassOn ? "two file descriptors" : "a file descriptor"), but the "
                    + "relay may open \(descriptors): raise LimitNOFILE of the service (ulimit -n), or lower 'connections'"
            )
        }
        return sentences
    }

    private static func megabytes(_ bytes: Int) -> Int { (bytes + 500_000) / 1_000_000 }

    /// Warns of what is missing here. Takes as many descriptors as it needs and may have.
    func check(_ logger: Logger) {
        for problem in problems(memory: MachineMemory.limit, descriptors: Self.raiseDescriptorLimit(to: descriptors)) {
            logger.warning("\(problem)")
        }
    }

    /// The number of descriptors that this process may have, after it was raised to `count` if that is possible; nil: not known.
    private static func raiseDescriptorLimit(to count: Int) -> Int? {
        var limit = rlimit()
        guard getrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit) == 0 else { return nil }
        let needed = rlim_t(count)
        if limit.rlim_cur < needed, limit.rlim_cur < limit.rlim_max {
            var raised = limit
            raised.rlim_cur = min(needed, limit.rlim_max)
            if setrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &raised) == 0 { limit = raised }
        }
        return Int(clamping: limit.rlim_cur)
    }
}

/// The memory that this process may use.
enum MachineMemory {
    private static let root = "/sys/fs/cgroup"

    /// Of the machine, or of the control groups that this process is in (`MemoryMax=`), if that is less; nil: not known.
    static var limit: Int? {
        let pages = sysconf(Int32(_SC_PHYS_PAGES)), page = sysconf(Int32(_SC_PAGESIZE))
        let machine = pages > 0 && page > 0 ? pages * page : nil
        return ([machine] + groupLimits(of: text("/proc/self/cgroup") ?? "", read: text)).compactMap(\.self).min()
    }

    /// The limits of the control group (version 2) that `membership` names, and of those around it.
    ///
    /// - Parameters:
    ///   - membership: The text of /proc/self/cgroup.
    ///   - read: The text of a file; nil: there is none.
    static func groupLimits(of membership: String, read: (String) -> String?) -> [Int?] {
        guard let line = membership.split(separator: "\n").first(where: { $0.hasPrefix("0::/") }) else { return [] }
        var names = line.dropFirst("0::/".count).split(separator: "/")
        var limits: [Int?] = []
        while true {
            let group = ([root] + names.map(String.init)).joined(separator: "/")
            // "max": there is none.
            limits.append(read(group + "/memory.max").flatMap { Int($0.prefix { $0 != "\n" }) })
            guard !names.isEmpty else { return limits }
            names.removeLast()
        }
    }

    private static func text(_ path: String) -> String? {
        guard let bytes = try? RegularFile.readIfPresent(path, byteCountMax: 65_536) else { return nil }
        return String(decoding: bytes, as: UTF8.self)
    }
}
