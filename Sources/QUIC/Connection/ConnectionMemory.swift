// What the QUIC library allocates for an endpoint's connections, of which few are used at a time.
import CLinux
import CNgtcp2

/// Where the library's memory of an endpoint's accepted connections is.
///
/// The library reserves pools for thousands of packets on their way, 100 kB for each connection, and an idle one has written a tenth of
/// that. So connections share addresses: one of those that do is there, and of the others only what is not 0 is kept. Each has the same
/// addresses whenever it is there, so the library does not notice. To change costs about as much as a packet.
final class ConnectionStage {
    // Each place takes 100 kB, and more of them make neither the joins of thousands nor a hundred talkers cheaper
    // (docs/decisions/21). A debug build has one, so that a pointer which is kept across the use of another connection shows in
    // every test.
    #if DEBUG
    private static let places = (minimum: 1, connectionsPerPlace: 1 << 20)
    #else
    private static let places = (minimum: 64, connectionsPerPlace: 200)
    #endif

    fileprivate let stage: OpaquePointer

    /// Nil: there is no memory.
    init?() {
        guard let stage = ptt_stage_make(Self.places.minimum, Self.places.connectionsPerPlace) else { return nil }
        self.stage = stage
    }

    deinit { ptt_stage_free(stage) }
}

/// The memory of one connection's `ngtcp2_conn` and of all that belongs to it.
final class ConnectionMemory {
    private let stage: ConnectionStage
    private let memory: OpaquePointer
    /// For the library; lives as long as this.
    let allocator: UnsafeMutablePointer<ngtcp2_mem>

    /// Nil when the process has no memory or no addresses left: the library then uses malloc.
    init?(on stage: ConnectionStage) {
        guard let memory = ptt_memory_make(stage.stage) else { return nil }
        self.stage = stage
        self.memory = memory
        allocator = .allocate(capacity: 1)
        allocator.initialize(
            to: ngtcp2_mem(
                user_data: UnsafeMutableRawPointer(memory), malloc: ptt_memory_malloc, free: ptt_memory_release,
                calloc: ptt_memory_calloc, realloc: ptt_memory_realloc))
    }

    deinit {
        allocator.deallocate()
        ptt_memory_free(memory)
    }

    /// Whether the library may use it.
    var isThere: Bool { ptt_memory_is_there(memory) != 0 }

    /// Bytes that are held for what is kept while it is not there.
    var keptByteCount: Int { ptt_memory_kept(memory) }

    /// The library may use it until that of another connection of the endpoint enters.
    func enter() { ptt_memory_enter(memory) }

    /// Makes room, as another one that enters would; for tests.
    func leave() { ptt_memory_leave(memory) }
}
