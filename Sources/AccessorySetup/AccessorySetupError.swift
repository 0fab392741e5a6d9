// Errors about accessories that are not there.
import Accessories
import Vocabulary

extension AccessoryError {
    static func unknown(_ id: AccessoryID) -> AccessoryError {
        AccessoryError(.notFound, "there is no accessory '\(id)'; 'pttctl accessory list' shows those there are")
    }
}
