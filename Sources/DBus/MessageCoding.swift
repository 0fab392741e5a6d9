// Between our values and libdbus's message iterators. What goes out has been checked before.
import CDBus
import Glibc
import MonotonicTime

extension OutgoingMessage {
    /// A libdbus message that the caller unreferences.
    func encode() throws(DBusError) -> OpaquePointer {
        let signature = try check()
        guard let message = create() else { throw .limitReached("memory for a message") }
        var iterator = DBusMessageIter()
        dbus_message_iter_init_append(message, &iterator)
        for (value, type) in zip(arguments, signature.types) {
            guard append(value, type, &iterator) else {
                dbus_message_unref(message)
                throw .limitReached("memory or descriptors for a message")
            }
        }
        return message
    }

    private func create() -> OpaquePointer? {
        switch kind {
        case .call(let destination, let path, let interface, let member):
            let message = dbus_message_new_method_call(destination, path.rawValue, interface, member)
            if let message, !startsService { dbus_message_set_auto_start(message, 0) }
            return message
        case .signal(let path, let interface, let member, let destination):
            guard let message = dbus_message_new_signal(path.rawValue, interface, member) else { return nil }
            if let destination, dbus_message_set_destination(message, destination) == 0 {
                dbus_message_unref(message)
                return nil
            }
            return message
        case .reply(let serial, let destination):
            return address(dbus_message_new(DBUS_MESSAGE_TYPE_METHOD_RETURN), serial, destination, error: nil)
        case .error(let serial, let destination, let name):
            return address(dbus_message_new(DBUS_MESSAGE_TYPE_ERROR), serial, destination, error: name)
        }
    }

    private func address(
        _ message: OpaquePointer?, _ serial: UInt32, _ destination: String, error: String?
    ) -> OpaquePointer? {
        guard let message else { return nil }
        dbus_message_set_no_reply(message, 1)
        guard dbus_message_set_reply_serial(message, serial) != 0,
            dbus_message_set_destination(message, destination) != 0,
            error.map({ dbus_message_set_error_name(message, $0) != 0 }) ?? true
        else {
            dbus_message_unref(message)
            return nil
        }
        return message
    }

    private func append(_ value: DBusValue, _ type: DBusType, _ iterator: inout DBusMessageIter) -> Bool {
        switch value {
        case .byte(let number): return appendBasic("y", number, &iterator)
        case .boolean(let flag): return appendBasic("b", dbus_bool_t(flag ? 1 : 0), &iterator)
        case .int16(let number): return appendBasic("n", number, &iterator)
        case .uint16(let number): return appendBasic("q", number, &iterator)
        case .int32(let number): return appendBasic("i", number, &iterator)
        case .uint32(let number): return appendBasic("u", number, &iterator)
        case .int64(let number): return appendBasic("x", number, &iterator)
        case .uint64(let number): return appendBasic("t", number, &iterator)
        case .double(let number): return appendBasic("d", number, &iterator)
        case .unixDescriptor(let descriptor): return appendBasic("h", descriptor.number, &iterator)
        case .string(let string): return appendString("s", string, &iterator)
        case .objectPath(let path): return appendString("o", path.rawValue, &iterator)
        case .signature(let signature): return appendString("g", signature.rawValue, &iterator)
        case .bytes(let bytes):
            return container("a", "y", &iterator) { inner in
                bytes.withUnsafeBufferPointer { buffer in
                    guard var start = buffer.baseAddress else { return true }
                    return dbus_message_iter_append_fixed_array(
                        &inner, code("y"), &start, Int32(buffer.count)) != 0
                }
            }
        case .array(let element, let elements):
            return container("a", element.code, &iterator) { inner in
                elements.allSatisfy { append($0, element, &inner) }
            }
        case .dictionary(let key, let valueType, let entries):
            return container("a", "{" + key.code + valueType.code + "}", &iterator) { inner in
                entries.allSatisfy { name, item in
                    container("e", nil, &inner) { append(name, key, &$0) && append(item, valueType, &$0) }
                }
            }
        case .structure(let fields):
            return container("r", nil, &iterator) { inner in
                fields.allSatisfy { append($0, $0.type, &inner) }
            }
        case .variant(let content):
            return container("v", content.type.code, &iterator) { append(content, content.type, &$0) }
        }
    }

    private func appendBasic<T>(_ type: Unicode.Scalar, _ value: T, _ iterator: inout DBusMessageIter) -> Bool {
        withUnsafePointer(to: value) { dbus_message_iter_append_basic(&iterator, code(type), $0) != 0 }
    }

    private func appendString(_ type: Unicode.Scalar, _ string: String, _ iterator: inout DBusMessageIter) -> Bool {
        string.withCString { text in
            withUnsafePointer(to: text) { dbus_message_iter_append_basic(&iterator, code(type), $0) != 0 }
        }
    }

    private func container(
        _ type: Unicode.Scalar, _ signature: String?, _ iterator: inout DBusMessageIter,
        _ fill: (inout DBusMessageIter) -> Bool
    ) -> Bool {
        var inner = DBusMessageIter()
        guard dbus_message_iter_open_container(&iterator, code(type), signature, &inner) != 0 else { return false }
        guard fill(&inner) else {
            dbus_message_iter_abandon_container(&iterator, &inner)
            return false
        }
        return dbus_message_iter_close_container(&iterator, &inner) != 0
    }
}

/// `DBUS_TYPE_…`, macros that Swift does not see: the ASCII code of the type.
private func code(_ type: Unicode.Scalar) -> Int32 { Int32(type.value) }

extension DBusMessage {
    /// Reads everything but the arguments of a message that libdbus received, and so has validated; nil for one of a kind that
    /// D-Bus does not have yet.
    init?(head message: OpaquePointer, at receivedAt: Instant) {
        switch dbus_message_get_type(message) {
        case DBUS_MESSAGE_TYPE_METHOD_CALL: kind = .methodCall
        case DBUS_MESSAGE_TYPE_METHOD_RETURN: kind = .methodReturn
        case DBUS_MESSAGE_TYPE_ERROR: kind = .error
        case DBUS_MESSAGE_TYPE_SIGNAL: kind = .signal
        default: return nil
        }
        serial = dbus_message_get_serial(message)
        replySerial = dbus_message_get_reply_serial(message)
        sender = dbus_message_get_sender(message).map { String(cString: $0) }
        destination = dbus_message_get_destination(message).map { String(cString: $0) }
        path = dbus_message_get_path(message).map { DBusObjectPath(unchecked: String(cString: $0)) }
        interface = dbus_message_get_interface(message).map { String(cString: $0) }
        member = dbus_message_get_member(message).map { String(cString: $0) }
        errorName = dbus_message_get_error_name(message).map { String(cString: $0) }
        wantsReply = dbus_message_get_no_reply(message) == 0
        signature = dbus_message_get_signature(message).map { String(cString: $0) } ?? ""
        self.receivedAt = receivedAt
    }

    /// Reads the arguments of a message that libdbus received.
    static func readArguments(of message: OpaquePointer) throws(DBusError) -> [DBusValue] {
        let signature = try DBusSignature(dbus_message_get_signature(message).map { String(cString: $0) } ?? "")
        var arguments: [DBusValue] = []
        var iterator = DBusMessageIter()
        guard dbus_message_iter_init(message, &iterator) != 0 else { return [] }
        var budget = ReadingBudget()
        for type in signature.types {
            arguments.append(try decode(type, &iterator, &budget))
            dbus_message_iter_next(&iterator)
        }
        return arguments
    }

    private static func decode(
        _ type: DBusType, _ iterator: inout DBusMessageIter, _ budget: inout ReadingBudget
    ) throws(DBusError) -> DBusValue {
        try budget.take(1)
        switch type {
        case .byte: return .byte(basic(&iterator, 0))
        case .boolean: return .boolean(basic(&iterator, dbus_bool_t(0)) != 0)
        case .int16: return .int16(basic(&iterator, 0))
        case .uint16: return .uint16(basic(&iterator, 0))
        case .int32: return .int32(basic(&iterator, 0))
        case .uint32: return .uint32(basic(&iterator, 0))
        case .int64: return .int64(basic(&iterator, 0))
        case .uint64: return .uint64(basic(&iterator, 0))
        case .double: return .double(basic(&iterator, 0))
        case .string: return .string(try text(&iterator, &budget))
        case .objectPath: return .objectPath(DBusObjectPath(unchecked: try text(&iterator, &budget)))
        case .signature: return .signature(try DBusSignature(try text(&iterator, &budget)))
        case .unixDescriptor:
            // libdbus hands out a duplicate; -1 when the message does not bring the descriptor it names.
            let number: Int32 = basic(&iterator, -1)
            guard number >= 0 else { throw .invalid("a message without the descriptor that it names") }
            return .unixDescriptor(DBusDescriptor(owning: number))
        case .variant:
            var inner = DBusMessageIter()
            dbus_message_iter_recurse(&iterator, &inner)
            guard let signature = dbus_message_iter_get_signature(&inner) else {
                throw .limitReached("memory for a message")
            }
            defer { dbus_free(signature) }
            let types = try DBusSignature(String(cString: signature)).types
            guard types.count == 1, let type = types.first else { throw .invalid("a variant without one value") }
            return .variant(try decode(type, &inner, &budget))
        case .array(.byte):
            let bytes = fixedArray(&iterator)
            try budget.take(bytes.count)
            return .bytes(Array(bytes))
        case .array(let element):
            var inner = DBusMessageIter()
            dbus_message_iter_recurse(&iterator, &inner)
            var elements: [DBusValue] = []
            while dbus_message_iter_get_arg_type(&inner) != 0 {
                elements.append(try decode(element, &inner, &budget))
                dbus_message_iter_next(&inner)
            }
            return .array(element, elements)
        case .dictionary(let key, let value):
            var inner = DBusMessageIter()
            dbus_message_iter_recurse(&iterator, &inner)
            var entries: [DBusValue: DBusValue] = [:]
            while dbus_message_iter_get_arg_type(&inner) != 0 {
                var entry = DBusMessageIter()
                dbus_message_iter_recurse(&inner, &entry)
                let name = try decode(key, &entry, &budget)
                dbus_message_iter_next(&entry)
                entries[name] = try decode(value, &entry, &budget)
                dbus_message_iter_next(&inner)
            }
            return .dictionary(key: key, value: value, entries)
        case .structure(let types):
            var inner = DBusMessageIter()
            dbus_message_iter_recurse(&iterator, &inner)
            var fields: [DBusValue] = []
            for type in types {
                fields.append(try decode(type, &inner, &budget))
                dbus_message_iter_next(&inner)
            }
            return .structure(fields)
        }
    }

    /// The bytes of an array of bytes; libdbus's, as long as the message is there.
    static func fixedArray(_ iterator: inout DBusMessageIter) -> UnsafeBufferPointer<UInt8> {
        var inner = DBusMessageIter()
        dbus_message_iter_recurse(&iterator, &inner)
        var start: UnsafePointer<UInt8>?
        var count: Int32 = 0
        dbus_message_iter_get_fixed_array(&inner, &start, &count)
        return UnsafeBufferPointer(start: start, count: Int(count))
    }

    private static func basic<T: BitwiseCopyable>(_ iterator: inout DBusMessageIter, _ initial: T) -> T {
        var value = initial
        dbus_message_iter_get_basic(&iterator, &value)
        return value
    }

    private static func text(
        _ iterator: inout DBusMessageIter, _ budget: inout ReadingBudget
    ) throws(DBusError) -> String {
        var pointer: UnsafePointer<CChar>?
        dbus_message_iter_get_basic(&iterator, &pointer)
        guard let pointer else { return "" }
        try budget.take(strlen(pointer))
        return String(cString: pointer)
    }
}
