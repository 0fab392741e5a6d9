// A program on the bus that uses libdbus as it likes: long messages, many descriptors, answers that it never reads.
import CDBus
import Glibc
import Testing

/// A connection of libdbus's own, used on the thread that makes it. It blocks.
final class RawPeer {
    let connection: OpaquePointer

    init(_ address: String) throws {
        connection = try #require(dbus_connection_open_private(address, nil))
        dbus_connection_set_exit_on_disconnect(connection, 0)
        try #require(dbus_bus_register(connection, nil) != 0)
    }

    deinit {
        dbus_connection_close(connection)
        dbus_connection_unref(connection)
    }

    /// A call of `org.example.Taker`.
    static func call(_ name: String, _ method: String) throws -> OpaquePointer {
        try #require(dbus_message_new_method_call(name, "/taker", "org.example.Taker", method))
    }

    /// A signal to `name` alone.
    static func signal(to name: String, interface: String = "org.example.Noise") throws -> OpaquePointer {
        let message = try #require(dbus_message_new_signal("/noise", interface, "Noise"))
        dbus_message_set_destination(message, name)
        return message
    }

    static func append(bytes count: Int, to message: OpaquePointer) {
        let bytes = [UInt8](repeating: 7, count: count)
        var iterator = DBusMessageIter()
        var inner = DBusMessageIter()
        dbus_message_iter_init_append(message, &iterator)
        dbus_message_iter_open_container(&iterator, Int32(UInt8(ascii: "a")), "y", &inner)
        bytes.withUnsafeBufferPointer { buffer in
            var start = buffer.baseAddress
            _ = dbus_message_iter_append_fixed_array(&inner, Int32(UInt8(ascii: "y")), &start, Int32(count))
        }
        dbus_message_iter_close_container(&iterator, &inner)
    }

    static func append(emptyArrays count: Int, to message: OpaquePointer) {
        var iterator = DBusMessageIter()
        var inner = DBusMessageIter()
        dbus_message_iter_init_append(message, &iterator)
        dbus_message_iter_open_container(&iterator, Int32(UInt8(ascii: "a")), "ai", &inner)
        for _ in 0..<count {
            var innermost = DBusMessageIter()
            dbus_message_iter_open_container(&inner, Int32(UInt8(ascii: "a")), "i", &innermost)
            dbus_message_iter_close_container(&inner, &innermost)
        }
        dbus_message_iter_close_container(&iterator, &inner)
    }

    static func append(descriptors count: Int, to message: OpaquePointer) {
        var iterator = DBusMessageIter()
        dbus_message_iter_init_append(message, &iterator)
        for _ in 0..<count {
            var descriptor: Int32 = 0
            dbus_message_iter_append_basic(&iterator, Int32(UInt8(ascii: "h")), &descriptor)
        }
    }

    /// Sends a message and waits until it is written.
    func send(_ message: OpaquePointer) {
        dbus_connection_send(connection, message, nil)
        dbus_connection_flush(connection)
        dbus_message_unref(message)
    }

    /// Calls and waits for the answer: the error's name, or nil.
    func errorName(_ message: OpaquePointer) -> String? {
        var error = CDBus.DBusError()
        dbus_error_init(&error)
        defer {
            dbus_error_free(&error)
            dbus_message_unref(message)
        }
        guard let answer = dbus_connection_send_with_reply_and_block(connection, message, 60_000, &error) else {
            return error.name.map { String(cString: $0) } ?? "no answer"
        }
        dbus_message_unref(answer)
        return nil
    }
}
