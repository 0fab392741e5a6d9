// PulseAudio, or PipeWire in its place, asked for Bluetooth headsets. libpulse runs on a thread of its own.
import CLinux
import CPulse
import Glibc
import MonotonicTime
import Synchronization

/// What a sound server tells.
package enum PulseReport: Equatable, Sendable {
    /// The headsets that it shows, whenever something is different.
    case listed([HeadsetFacts])
    /// It cannot be reached, in words; it is tried again.
    case lost(String)
    /// A profile was set, or was refused with these words.
    case profileSet(card: UInt32, problem: String?)
}

/// One connection to the user's sound server. It is opened again whenever it is lost.
///
/// libpulse connects where its own clients do: PULSE_SERVER, client.conf, then the user's runtime directory
/// (pulse-client.conf(5)). It starts no server.
package final class PulseServer: Sendable {
    private enum Command {
        case setProfile(card: UInt32, String)
        case renewLink(HeadsetFacts)
    }

    private struct Shared {
        var commands: [Command] = []
        var isClosed = false
    }

    /// A press sets one profile; more are not waited for.
    private static let commandsMax = 32

    // Set once in `init`; `mainloop_wakeup` may be called from any thread (pulse/mainloop.h).
    private let pulse: ptt_pulse
    private nonisolated(unsafe) let mainloop: OpaquePointer
    private let shared = Mutex(Shared())

    /// Connects, on a new thread, and keeps the connection.
    ///
    /// - Parameters:
    ///   - address: The server (PulseAudio's "Server Strings"); nil: the user's.
    ///   - handler: Called on that thread.
    /// - Returns: Nil when libpulse is not installed, or no thread can be made.
    package init?(address: String? = nil, handler: @escaping @Sendable (PulseReport) -> Void) {
        guard let pulse = ptt_pulse_load()?.pointee, let mainloop = pulse.mainloop_new() else { return nil }
        self.pulse = pulse
        self.mainloop = mainloop
        // `deinit` frees the loop, also when this fails.
        guard startThread(address, handler) else { return nil }
    }

    /// Has the server use a card in another way. `profileSet` answers. From any thread; returns at once.
    package func setProfile(card: UInt32, _ profile: String) { send(.setProfile(card: card, profile)) }

    /// Has the server close a headset's link and open it anew. From any thread; returns at once.
    package func renewLink(of headset: HeadsetFacts) { send(.renewLink(headset)) }

    private func send(_ command: Command) {
        let isAccepted = shared.withLock { shared in
            guard shared.commands.count < Self.commandsMax, !shared.isClosed else { return false }
            shared.commands.append(command)
            return true
        }
        if isAccepted { pulse.mainloop_wakeup(mainloop) }
    }

    /// Ends the connection and the thread; returns at once. The handler may be called once more.
    package func close() {
        shared.withLock { $0.isClosed = true }
        pulse.mainloop_wakeup(mainloop)
    }

    private func startThread(_ address: String?, _ handler: @escaping @Sendable (PulseReport) -> Void) -> Bool {
        final class Start {
            let body: () -> Void
            init(_ body: @escaping () -> Void) { self.body = body }
        }
        // Both the thread and the owner hold the server: it is freed when neither does.
        let start = Unmanaged.passRetained(Start { self.run(address, handler) })
        var attributes = pthread_attr_t()
        pthread_attr_init(&attributes)
        defer { pthread_attr_destroy(&attributes) }
        pthread_attr_setdetachstate(&attributes, Int32(PTHREAD_CREATE_DETACHED))
        var thread = pthread_t()
        let result = pthread_create(
            &thread, &attributes,
            { argument in
                guard let argument else { return nil }
                let start = Unmanaged<Start>.fromOpaque(argument).takeRetainedValue()
                ptt_set_thread_name("ptt-headsets")
                start.body()
                return nil
            }, start.toOpaque())
        if result != 0 { start.release() }
        return result == 0
    }

    /// The thread: libpulse's events, and our commands between them.
    private func run(_ address: String?, _ handler: @escaping @Sendable (PulseReport) -> Void) {
        let session = PulseSession(pulse, mainloop, address: address, handler: handler)
        while true {
            session.connectWhenDue(at: .now)
            let wait = session.connectAt.map { max(0, ($0 - .now).nanoseconds / 1_000 + 1) }
            guard pulse.mainloop_prepare(mainloop, wait.map { Int32(clamping: $0) } ?? -1) >= 0,
                pulse.mainloop_poll(mainloop) >= 0, pulse.mainloop_dispatch(mainloop) >= 0
            else { break }
            let (commands, isClosed) = shared.withLock { shared in
                defer { shared.commands = [] }
                return (shared.commands, shared.isClosed)
            }
            if isClosed { break }
            for command in commands {
                switch command {
                case .setProfile(let card, let profile): session.setProfile(card: card, profile)
                case .renewLink(let headset): session.renewLink(of: headset)
                }
            }
        }
        session.end()
        // A wake-up that comes later must not find a freed loop.
        shared.withLock { $0.isClosed = true }
    }

    deinit { pulse.mainloop_free(mainloop) }
}
