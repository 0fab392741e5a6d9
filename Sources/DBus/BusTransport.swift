// One libdbus connection on an event loop: its watches and time-outs, sending, and dispatch. No rules live here.
import CDBus
import Glibc
import MonotonicTime
import Reactor

/// A private libdbus connection, confined to the loop's thread.
///
/// libdbus holds an unretained pointer to this object from `init` to `close()`, so `close()` must come first.
final class BusTransport {
    private let loop: EventLoop
    private var connection: OpaquePointer?
    private let onMessage: (DBusMessage) -> Void
    private let onClosed: () -> Void
    /// Whether a message is to be read; asked before it is.
    private let admits: (OpaquePointer) -> Bool
    /// libdbus has two watches on one descriptor, epoll takes a descriptor once.
    private var watches: [OpaquePointer] = []
    private var polled: [Int32: (watch: EventLoop.Watch, interest: EventLoop.Readiness)] = [:]
    private var timers: [OpaquePointer: EventLoop.Timer] = [:]
    private var dispatchTimer: EventLoop.Timer?
    /// The message that `onMessage` is told of; libdbus's, and there only during that call.
    private var current: OpaquePointer?

    /// Takes over an opened connection; authentication goes on in the background.
    ///
    /// - Parameters:
    ///   - admits: Called on the loop for each message before it is looked at: whether it is handed on now.
    ///   - onMessage: Called on the loop for the head of each message, in order. `readArguments` reads the rest of it.
    ///   - onClosed: Called on the loop once when the other end is gone, after the last message.
    init(
        _ opened: OpenedBus, loop: EventLoop, admits: @escaping (OpaquePointer) -> Bool,
        onMessage: @escaping (DBusMessage) -> Void,
        onClosed: @escaping () -> Void
    ) throws(DBusError) {
        loop.checkIsolated()
        self.loop = loop
        self.admits = admits
        self.onMessage = onMessage
        self.onClosed = onClosed
        let connection = opened.connection
        self.connection = connection
        dbus_connection_set_exit_on_disconnect(connection, 0)
        dbus_connection_set_max_message_size(connection, DBusLimits.busMessageBytes)
        dbus_connection_set_max_received_size(connection, DBusLimits.receivedBytes)
        dbus_connection_set_max_message_unix_fds(connection, DBusLimits.busMessageDescriptors)
        dbus_connection_set_max_received_unix_fds(connection, DBusLimits.receivedDescriptors)
        guard install(on: connection) else {
            close()
            throw .limitReached("memory for libdbus")
        }
    }

    deinit { precondition(connection == nil, "a bus transport was dropped without close()") }

    var isConnected: Bool { connection.map { dbus_connection_get_is_connected($0) != 0 } ?? false }

    /// Sends a message now, or queues it while the socket is full.
    /// - Returns: Its serial number.
    func send(_ outgoing: OutgoingMessage) throws(DBusError) -> UInt32 {
        guard let connection, isConnected else { throw .disconnected }
        guard !isCongested else {
            throw .limitReached("\(DBusLimits.outgoingBytes) bytes waiting to be sent")
        }
        let message = try outgoing.encode()
        defer { dbus_message_unref(message) }
        if dbus_message_contains_unix_fds(message) != 0, !canSendDescriptors {
            throw .invalid("a descriptor on a bus that carries none")
        }
        var serial: UInt32 = 0
        guard dbus_connection_send(connection, message, &serial) != 0 else {
            throw .limitReached("memory for a message")
        }
        return serial
    }

    /// Whether so much waits to be written that nothing more is taken.
    var isCongested: Bool {
        connection.map { dbus_connection_get_outgoing_size($0) >= DBusLimits.outgoingBytes } ?? false
    }

    private var canSendDescriptors: Bool {
        connection.map { dbus_connection_can_send_type($0, Int32(UInt8(ascii: "h"))) != 0 } ?? false
    }

    /// Ends the connection. No handler is called from then on.
    func close() {
        guard let connection else { return }
        loop.checkIsolated()
        self.connection = nil
        dispatchTimer?.cancel()
        dbus_connection_close(connection)
        // These make libdbus call the remove functions for what is left.
        _ = dbus_connection_set_watch_functions(connection, nil, nil, nil, nil, nil)
        _ = dbus_connection_set_timeout_functions(connection, nil, nil, nil, nil, nil)
        dbus_connection_set_dispatch_status_function(connection, nil, nil, nil)
        dbus_connection_remove_filter(connection, busFilter, context)
        for entry in polled.values { entry.watch.cancel() }
        polled = [:]
        watches = []
        for timer in timers.values { timer.cancel() }
        timers = [:]
        dbus_connection_unref(connection)
    }

    // MARK: What libdbus calls

    private var context: UnsafeMutableRawPointer { Unmanaged.passUnretained(self).toOpaque() }

    private func install(on connection: OpaquePointer) -> Bool {
        dbus_connection_set_dispatch_status_function(
            connection,
            { _, status, data in
                guard status == DBUS_DISPATCH_DATA_REMAINS else { return }
                transport(data)?.scheduleDispatch()
            }, context, nil)
        return dbus_connection_add_filter(connection, busFilter, context, nil) != 0
            && dbus_connection_set_watch_functions(
                connection,
                { watch, data in
                    guard let watch, let transport = transport(data) else { return 0 }
                    transport.watches.append(watch)
                    transport.refresh(dbus_watch_get_unix_fd(watch))
                    return 1
                },
                { watch, data in
                    guard let watch, let transport = transport(data) else { return }
                    transport.watches.removeAll { $0 == watch }
                    transport.refresh(dbus_watch_get_unix_fd(watch))
                },
                { watch, data in
                    guard let watch, let transport = transport(data) else { return }
                    transport.refresh(dbus_watch_get_unix_fd(watch))
                }, context, nil) != 0
            && dbus_connection_set_timeout_functions(
                connection,
                { timeout, data in
                    guard let timeout, let transport = transport(data) else { return 0 }
                    transport.start(timeout)
                    return 1
                },
                { timeout, data in
                    guard let timeout, let transport = transport(data) else { return }
                    transport.timers.removeValue(forKey: timeout)?.cancel()
                },
                { timeout, data in
                    guard let timeout, let transport = transport(data) else { return }
                    transport.start(timeout)
                }, context, nil) != 0
    }

    /// Makes epoll wait for what libdbus's enabled watches of a descriptor want together.
    private func refresh(_ descriptor: Int32) {
        var wanted: EventLoop.Readiness = []
        var isEnabled = false
        for watch in watches where dbus_watch_get_unix_fd(watch) == descriptor && dbus_watch_get_enabled(watch) != 0 {
            isEnabled = true
            let flags = dbus_watch_get_flags(watch)
            if flags & DBUS_WATCH_READABLE.rawValue != 0 { wanted.insert(.readable) }
            if flags & DBUS_WATCH_WRITABLE.rawValue != 0 { wanted.insert(.writable) }
        }
        let current = polled[descriptor]
        guard isEnabled else {
            // Left in epoll, a hung-up descriptor that nobody reads would wake the loop for ever.
            current?.watch.cancel()
            polled[descriptor] = nil
            return
        }
        if let current {
            guard current.interest != wanted else { return }
            current.watch.update(wanted)
            polled[descriptor]?.interest = wanted
        } else if let watch = try? loop.watch(
            descriptor, for: wanted, { [weak self] in self?.ready(descriptor, $0) })
        {
            polled[descriptor] = (watch, wanted)
        } else {
            // No descriptor watch, no bus: as good as hung up.
            scheduleClosed()
        }
    }

    private func ready(_ descriptor: Int32, _ readiness: EventLoop.Readiness) {
        for watch in watches where dbus_watch_get_unix_fd(watch) == descriptor {
            // An earlier one may have removed this one.
            guard watches.contains(watch), dbus_watch_get_enabled(watch) != 0 else { continue }
            let wanted = dbus_watch_get_flags(watch)
            var flags: UInt32 = 0
            if readiness.contains(.readable) { flags |= DBUS_WATCH_READABLE.rawValue & wanted }
            if readiness.contains(.writable) { flags |= DBUS_WATCH_WRITABLE.rawValue & wanted }
            if readiness.contains(.hangUp) { flags |= DBUS_WATCH_HANGUP.rawValue }
            if readiness.contains(.error) { flags |= DBUS_WATCH_ERROR.rawValue }
            if flags != 0 { dbus_watch_handle(watch, flags) }
        }
        dispatch()
    }

    private func start(_ timeout: OpaquePointer) {
        timers.removeValue(forKey: timeout)?.cancel()
        guard dbus_timeout_get_enabled(timeout) != 0 else { return }
        let interval = Duration.milliseconds(max(1, Int64(dbus_timeout_get_interval(timeout))))
        timers[timeout] = loop.schedule(after: interval) { [weak self] in
            guard let self, self.timers[timeout] != nil else { return }
            dbus_timeout_handle(timeout)
            // libdbus's time-outs repeat until removed or disabled.
            if self.timers[timeout] != nil { self.start(timeout) }
            self.dispatch()
        }
    }

    // MARK: Dispatch

    private func dispatch() {
        var budget = DBusLimits.messagesPerTurn
        while let connection, budget > 0 {
            budget -= 1
            dbus_connection_ref(connection)
            let status = dbus_connection_dispatch(connection)
            dbus_connection_unref(connection)
            guard status == DBUS_DISPATCH_DATA_REMAINS else { return }
        }
        if connection != nil { scheduleDispatch() }
    }

    private func scheduleDispatch() {
        guard dispatchTimer?.isPending != true else { return }
        dispatchTimer = loop.schedule(at: .now) { [weak self] in self?.dispatch() }
    }

    private func scheduleClosed() {
        loop.schedule(at: .now) { [weak self] in
            guard let self, self.connection != nil else { return }
            self.onClosed()
        }
    }

    /// The message that `onMessage` is being told of, to be handed on later.
    func keepCurrent() -> KeptMessage? { current.map { KeptMessage($0) } }

    /// Reads the arguments of the message that `onMessage` is being told of.
    ///
    /// - Throws: `.limitReached` when there is more in it than `DBusLimits` lets in; `.invalid` when it cannot be read.
    func readArguments() throws(DBusError) -> [DBusValue] {
        guard let current else { throw .invalid("a message that is not there any more") }
        return try DBusMessage.readArguments(of: current)
    }

    /// How long the arguments of that message are, for a log.
    func measureArguments() -> MessageSize { current.map { MessageSize(of: $0) } ?? MessageSize() }

    fileprivate func filter(_ message: OpaquePointer) {
        guard connection != nil else { return }
        // libdbus makes it itself; from the bus it would have a sender.
        if dbus_message_get_sender(message) == nil,
            dbus_message_is_signal(message, "org.freedesktop.DBus.Local", "Disconnected") != 0
        {
            onClosed()
            return
        }
        if admits(message) { handOn(message) }
    }

    /// Tells the owner of a message that has come, now or before.
    func handOn(_ message: OpaquePointer) {
        guard let head = DBusMessage(head: message, at: .now) else { return }
        let outer = current
        current = message
        defer { current = outer }
        onMessage(head)
    }
}

private func transport(_ data: UnsafeMutableRawPointer?) -> BusTransport? {
    data.map { Unmanaged<BusTransport>.fromOpaque($0).takeUnretainedValue() }
}

private let busFilter: DBusHandleMessageFunction = { _, message, data in
    guard let message, let transport = transport(data) else { return DBUS_HANDLER_RESULT_NOT_YET_HANDLED }
    transport.filter(message)
    return DBUS_HANDLER_RESULT_HANDLED
}
