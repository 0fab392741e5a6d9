// Opening a bus: connect(2) and all that libdbus does around it, which may wait for the other end.
import CDBus
import Glibc
import MonotonicTime
import Reactor

/// A private libdbus connection that no loop serves yet. Whoever has it hands it to a `BusTransport` or closes it.
struct OpenedBus: @unchecked Sendable {
    let connection: OpaquePointer

    func close() {
        dbus_connection_close(connection)
        dbus_connection_unref(connection)
    }

    /// Opens the bus at `address`. Waits for as long as the other end wants: connect(2) waits while the backlog of a server that
    /// accepts nothing is full, and for minutes for a TCP address that does not answer.
    static func open(_ address: String) throws(DBusError) -> OpenedBus {
        guard !address.utf8.contains(0) else { throw .connectFailed(address: "", reason: "NUL byte in the address") }
        guard dbus_threads_init_default() != 0 else { throw .limitReached("memory for libdbus") }
        // libdbus would ignore SIGPIPE for the whole process; it sends with MSG_NOSIGNAL anyway.
        dbus_connection_set_change_sigpipe(0)
        var error = CDBus.DBusError()
        dbus_error_init(&error)
        guard let connection = dbus_connection_open_private(address, &error) else {
            let reason = error.message.map { String(cString: $0) } ?? "unknown reason"
            dbus_error_free(&error)
            throw .connectFailed(address: address, reason: reason)
        }
        return OpenedBus(connection: connection)
    }
}

/// Opens buses on threads of their own, so that the loop never waits. Confined to the loop; one attempt at a time.
final class BusOpener {
    private let loop: EventLoop
    /// An attempt that was given up and has not ended: its thread waits in connect(2) still.
    private var hasHangingAttempt = false

    init(on loop: EventLoop) { self.loop = loop }

    /// Opens the bus at `address`.
    ///
    /// - Parameters:
    ///   - limit: How long to wait. The attempt then goes on without anybody, and no other begins before its end.
    ///   - answer: Called once, on the loop.
    func open(_ address: String, within limit: Duration, _ answer: @escaping (Result<OpenedBus, DBusError>) -> Void) {
        guard !hasHangingAttempt else {
            return answer(.failure(.connectFailed(address: address, reason: Self.silence)))
        }
        let thread: EventLoop
        do throws(SystemError) { thread = try EventLoop(name: "ptt-bus-open", mayWait: true) } catch {
            return answer(.failure(.connectFailed(address: address, reason: "\(error)")))
        }
        var waiting: ((Result<OpenedBus, DBusError>) -> Void)? = answer
        let timer = loop.schedule(after: limit) { [self] in
            hasHangingAttempt = true
            waiting?(.failure(.connectFailed(address: address, reason: Self.silence)))
            waiting = nil
        }
        nonisolated(unsafe) let ended = { [self] (result: Result<OpenedBus, DBusError>) in
            timer.cancel()
            hasHangingAttempt = false
            if let waiting {
                waiting(result)
            } else if case .success(let opened) = result {
                opened.close()
            }
        }
        thread.execute { [loop] in
            let result: Result<OpenedBus, DBusError>
            do throws(DBusError) { result = .success(try OpenedBus.open(address)) } catch { result = .failure(error) }
            loop.execute { ended(result) }
            thread.stop()
        }
    }

    private static let silence = "nothing answers at this address; is the bus stopped or overloaded?"
}
