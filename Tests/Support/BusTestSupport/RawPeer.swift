// A program on the bus that uses libdbus as it likes: long messages, many descriptors, answers that it never reads.
import CDBus
import Glibc

/// A connection of libdbus's own, used on the thread that makes it. It blocks.
public final class RawPeer {
    /// libdbus had no memory, or refused.
    public struct Failure: Error {}

    /// The connection, for what this class does not do.
    public let connection: OpaquePointer

    /// Connects to the bus at `address`.
    public init(_ address: String) throws {
        guard let opened = dbus_connection_open_private(address, nil) else { throw Failure() }
        connection = opened
        dbus_connection_set_exit_on_disconnect(connection, 0)
        guard dbus_bus_register(connection, nil) != 0 else { throw Failure() }
    }

    deinit {
        dbus_connection_close(connection)
        dbus_connection_unref(connection)
    }

    /// A call of a method.
    public static func call(
        _ name: String, _ method: String, path: String = "/taker", interface: String = "org.example.Taker"
    ) throws -> OpaquePointer {
        guard let call = dbus_message_new_method_call(name, path, interface, method) else { throw Failure() }
        return call
    }

    /// A signal to `name` alone.
    public static func signal(to name: String, interface: String = "org.example.Noise") throws -> OpaquePointer {
        guard let message = dbus_message_new_signal("/noise", interface, "Noise") else { throw Failure() }
        dbus_message_set_destination(message, name)
        return message
    }

    /// An array of so many bytes.
    public static func append(bytes count: Int, to message: OpaquePointer) {
        var iterator = DBusMessageIter()
        dbus_message_iter_init_append(message, &iterator)
        append(bytes: count, at: &iterator)
    }

    private static func append(bytes count: Int, at iterator: inout DBusMessageIter) {
        let bytes = [UInt8](repeating: 7, count: count)
        var inner = DBusMessageIter()
        dbus_message_iter_open_container(&iterator, Int32(UInt8(ascii: "a")), "y", &inner)
        bytes.withUnsafeBufferPointer { buffer in
            var start = buffer.baseAddress
            _ = dbus_message_iter_append_fixed_array(&inner, Int32(UInt8(ascii: "y")), &start, Int32(count))
        }
        dbus_message_iter_close_container(&iterator, &inner)
    }

    /// A string.
    public static func append(_ text: String, to message: OpaquePointer) {
        var iterator = DBusMessageIter()
        dbus_message_iter_init_append(message, &iterator)
        append(text, at: &iterator)
    }

    private static func append(_ text: String, at iterator: inout DBusMessageIter) {
        text.withCString { text in
            var text: UnsafePointer<CChar>? = text
            _ = dbus_message_iter_append_basic(&iterator, Int32(UInt8(ascii: "s")), &text)
        }
    }

    /// A dictionary of properties with one, an array of so many bytes.
    public static func append(property name: String, bytes count: Int, to message: OpaquePointer) {
        var iterator = DBusMessageIter()
        var (entries, entry, value) = (DBusMessageIter(), DBusMessageIter(), DBusMessageIter())
        dbus_message_iter_init_append(message, &iterator)
        dbus_message_iter_open_container(&iterator, Int32(UInt8(ascii: "a")), "{sv}", &entries)
        dbus_message_iter_open_container(&entries, Int32(UInt8(ascii: "e")), nil, &entry)
        append(name, at: &entry)
        dbus_message_iter_open_container(&entry, Int32(UInt8(ascii: "v")), "ay", &value)
        append(bytes: count, at: &value)
        dbus_message_iter_close_container(&entry, &value)
        dbus_message_iter_close_container(&entries, &entry)
        dbus_message_iter_close_container(&iterator, &entries)
    }

    /// An array of so many arrays with nothing in them.
    public static func append(emptyArrays count: Int, to message: OpaquePointer) {
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

    /// So many descriptors.
    public static func append(descriptors count: Int, to message: OpaquePointer) {
        var iterator = DBusMessageIter()
        dbus_message_iter_init_append(message, &iterator)
        for _ in 0..<count {
            var descriptor: Int32 = 0
            dbus_message_iter_append_basic(&iterator, Int32(UInt8(ascii: "h")), &descriptor)
        }
    }

    /// Sends a message and waits until it is written.
    public func send(_ message: OpaquePointer) {
        dbus_connection_send(connection, message, nil)
        dbus_connection_flush(connection)
        dbus_message_unref(message)
    }

    /// Calls and waits for the answer: the error's name, or nil.
    public func errorName(_ message: OpaquePointer) -> String? {
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
