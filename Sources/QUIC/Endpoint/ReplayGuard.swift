// Remembers the ClientHellos that carried early data, so that none is accepted twice within the window.
import CGnuTLS
import CLinux
import CNgtcp2
import MonotonicTime
import Synchronization

/// What a server has seen of early data lately (RFC 8446, section 8.2). GnuTLS checks the age; this one, duplicates.
///
/// A replay is refused for as long as its age could pass. When too many come at once, early data is refused: those
/// clients say it again after the handshake. Pure but for the callback that GnuTLS takes. May be used from any thread.
final class ReplayGuard: Sendable {
    /// GnuTLS accepts a ticket age that is off by its window of 10 s.
    private static let memory = Duration.seconds(21)
    /// Three times as many as a relay has connections by default. By calculation it takes 6 MB when it is full.
    static let capacity = 65_536
    /// The key begins with the start of GnuTLS's window, which differs for one and the same greeting.
    private static let keyPrefix = 12

    /// The first half of a binder, which is the output of an HMAC: none is met twice by chance.
    private typealias Mark = UInt128

    private struct Seen {
        var binders: Set<Mark> = []
        var order: [(binder: Mark, at: Instant)] = []
        var oldest = 0

        mutating func isNew(_ binder: Mark, at now: Instant) -> Bool {
            while oldest < order.count, now - order[oldest].at > ReplayGuard.memory {
                binders.remove(order[oldest].binder)
                oldest += 1
            }
            if oldest > order.count / 2 {
                order.removeFirst(oldest)
                oldest = 0
            }
            guard binders.count < ReplayGuard.capacity, binders.insert(binder).inserted else { return false }
            order.append((binder, now))
            return true
        }
    }

    private let seen = Mutex(Seen())

    /// Whether the greeting with this PSK binder is new; it is remembered.
    func isNew(_ binder: some Sequence<UInt8>, at now: Instant) -> Bool {
        let mark = binder.prefix(16).reduce(Mark(0)) { $0 << 8 | Mark($1) }
        return seen.withLock { $0.isNew(mark, at: now) }
    }

    /// The context for one session's check; the guard and the context must outlive it.
    func makeContext() -> gnutls_anti_replay_t? {
        var context: gnutls_anti_replay_t?
        _ = ptt_gnutls_anti_replay_init(&context)
        guard let context else { return nil }
        gnutls_anti_replay_set_ptr(context, Unmanaged.passUnretained(self).toOpaque())
        gnutls_anti_replay_set_add_function(context) { pointer, _, key, _ in
            guard let pointer, let key = key?.pointee, let data = key.data else { return GNUTLS_E_DB_ERROR }
            let binder = UnsafeBufferPointer(start: data, count: Int(key.size)).dropFirst(ReplayGuard.keyPrefix)
            let guarding = Unmanaged<ReplayGuard>.fromOpaque(pointer).takeUnretainedValue()
            return guarding.isNew(binder, at: .now) ? 0 : GNUTLS_E_DB_ENTRY_EXISTS
        }
        return context
    }
}
